"""Learn the pose prior from CMU motion capture: a mixture of Gaussians by expectation-maximisation.

    python -m fitting.training.pose_prior --poses poses_5fps.npz --clips clips_30fps.npz --out pose_prior.npz

Prints the held-out log-likelihood of one Gaussian beside that of the mixture. Subjects whose number is a multiple of
five are never learned from, nor are the kinds of motion in `motion_capture.LEFT_OUT_KINDS`. Poses are drawn by
kind, and some who stand get straighter legs (`pose_kinds.py`). Every pose counts twice, as it is and mirrored.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import fitting
from fitting.body.kinematics import JOINT_NAMES, MIRROR
from fitting.solver.prior import from_mixture, packed
from fitting.solver.unknowns import BODY_JOINTS
from fitting.training.motion_capture import Motion, load_motion
from fitting.training.pose_kinds import LEG_JOINTS, drawing_weights, legs_kept, pose_kinds
from pose2d.base.files import atomic_file

FLOOR_RAD = 0.03  # what capture and retargeting blur anyway
SILENT_RAD = {"collar": 0.12, "wrist": 0.2, "hand": 0.1}  # joints the capture leaves still in whole or in part
ELBOW_TWIST_RAD = 0.2
Mixture = tuple[Tensor, Tensor, Tensor]  # weights [M], means [M, 69], covariances [M, 69, 69]


def mirrored(pose: Tensor) -> Tensor:
    """The mirror image of poses [N, 24, 3]: left and right trade places, turns about y and z change sign."""
    return pose[:, MIRROR] * pose.new_tensor([1, -1, -1])


def floor() -> Tensor:
    """Smallest variance of each of the 69 numbers, rad^2."""
    sigma = torch.full((23, 3), FLOOR_RAD)
    for joint, name in enumerate(JOINT_NAMES[1:]):
        for part, least in SILENT_RAD.items():
            if part in name:
                sigma[joint] = least
        if "elbow" in name:
            sigma[joint, 0] = ELBOW_TWIST_RAD
    return sigma.flatten().square()


def log_joint(x: Tensor, mixture: Mixture) -> Tensor:
    """log(weight_m density_m), [N, M]."""
    weights, means, covariances = mixture
    columns = []
    for weight, mean, covariance in zip(weights, means, covariances, strict=True):
        lower = torch.linalg.cholesky(covariance)
        away = torch.linalg.solve_triangular(lower, (x - mean).T, upper=False)
        log_det = lower.diagonal().log().sum()
        columns.append(weight.log() - log_det - (away.square().sum(0) + x.shape[1] * math.log(2 * math.pi)) / 2)
    return torch.stack(columns, 1)


def moments(x: Tensor, share: Tensor, least: Tensor) -> Mixture:
    """The mixture that shares [N, M] of the poses make up."""
    total = share.sum(0)
    means = (share.T @ x) / total[:, None]
    covariances = []
    for m in range(share.shape[1]):
        away = x - means[m]
        covariances.append((away * share[:, m, None]).T @ away / total[m] + torch.diag(least))
    return total / len(x), means, torch.stack(covariances)


def learn(x: Tensor, components: int, rounds: int, seed: int) -> Mixture:
    """EM from randomly chosen poses, each starting with its nearest neighbours."""
    least = floor().to(x)
    generator = torch.Generator().manual_seed(seed)
    seeds = x[torch.randperm(len(x), generator=generator)[:components]]
    share = torch.nn.functional.one_hot(torch.cdist(x, seeds).argmin(1), components).to(x)
    mixture = moments(x, share, least)
    for _ in range(rounds if components > 1 else 0):
        mixture = moments(x, log_joint(x, mixture).softmax(1) + 1e-9, least)
    return mixture


def smoothness(motion: Motion, body: fitting.Body) -> tuple[np.ndarray, np.ndarray]:
    """Spread of joint acceleration [24] m/s^2 and of axis-angle acceleration [57] rad/s^2 in what is learned from."""
    linear, angular = [], []
    assert motion.root_m is not None
    for number in np.flatnonzero(motion.learned):
        frames = motion.clip(int(number))
        out = body(motion.pose[frames], None, motion.root_m[frames])
        second = torch.diff(out.joints, n=2, dim=0) * motion.fps**2
        linear.append(second.square().mean(-1))
        theta = motion.pose[frames][:, BODY_JOINTS].flatten(1)
        angular.append((torch.diff(theta, n=2, dim=0) * motion.fps**2).square())

    def typical(squares: list[Tensor]) -> np.ndarray:
        # Above the 95th percentile are mostly marker swaps of the capture.
        values = torch.cat(squares)
        return torch.minimum(values, torch.quantile(values, 0.95, dim=0)).mean(0).sqrt().numpy()

    return typical(linear), np.maximum(typical(angular), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--poses", type=Path, required=True)
    parser.add_argument("--clips", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--compare", type=int, nargs="*", default=[1], help="other sizes to print beside it")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--samples", type=int, default=15_000)
    arguments = parser.parse_args()

    body = fitting.load_body()
    motion = load_motion(arguments.poses, body, 5.0, skeleton=arguments.clips)
    generator = torch.Generator().manual_seed(0)
    learned, kept = (motion.pose[motion.frames_of(clips)] for clips in (motion.learned, motion.held_out))
    kind = pose_kinds(torch.cat([body(part).joints for part in learned.split(8192)]))
    drawn = torch.multinomial(drawing_weights(kind), arguments.samples, replacement=True, generator=generator)
    learned, kind = learned[drawn].clone(), kind[drawn]
    learned[:, list(LEG_JOINTS)] *= legs_kept(kind, generator)[:, None, None]
    learned = torch.cat((learned, mirrored(learned)))[:, 1:].flatten(1)
    kept = kept[torch.randperm(len(kept), generator=generator)[:20_000], 1:].flatten(1)

    linear, angular = smoothness(load_motion(arguments.clips, body, 30.0), body)
    for components in (*arguments.compare, arguments.components):
        mixture = learn(learned, components, arguments.rounds, seed=0)
        weights, means, covariances = (part.double().numpy() for part in mixture)
        prior = from_mixture(weights, means, covariances, linear, angular)
        pose = kept.unflatten(1, (23, 3))[:, [joint - 1 for joint in BODY_JOINTS]].flatten(1)
        likely, nearest = prior.log_likelihood(pose).mean(), -prior.energy(pose)[0].mean()
        print(
            f"{components:3d} Gaussians: held-out log-likelihood {likely:.2f} per pose (nearest one {nearest:.2f})",
            flush=True,
        )
    with atomic_file(arguments.out) as path:
        np.savez_compressed(
            path, weights=weights.astype(np.float32), means=means.astype(np.float32), covariances=packed(covariances),
            acceleration_sigma=linear.astype(np.float32), angular_sigma=angular.astype(np.float32),
        )  # fmt: skip
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1024:.0f} KB")
    print("acceleration m/s^2:", dict(zip(JOINT_NAMES, linear.round(2).tolist(), strict=True)))


if __name__ == "__main__":
    main()
