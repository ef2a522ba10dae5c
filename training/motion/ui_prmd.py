"""Turn UI-PRMD's surface markers (Vicon, Plug-in Gait) onto the body's 24 joints.

Markers lie on the skin, so joint centres come first: hips by Harrington's regression from the
pelvis (J Biomech 2007), knees and ankles medially of their markers, shoulders below the acromion,
elbows inside. Each bone then takes the direction between its centres, and its turn about itself
from what is fixed to it: the hinge of knee or elbow, heel and toe, the two sides of the wrist.
Limbs of other lengths need no fit: directions do not depend on them.

Markers were put on anew for each movement, so nothing is calibrated across movements of one
subject.

Data: Vakanski, Jun, Paul, Baker: A Data Set of Human Body Movements for Physical Rehabilitation
Exercises, Data 2018, 3(1), 2; public domain (ODC PDDL 1.0).
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from eval3dpw.captured import collars
from eval3dpw.captured.motion import Motion, legs_m, read_checked, relative_poses
from fitting.body import Body
from fitting.body.rotations import matrix_to_axis_angle, rotate, rotation_matrices
from pose2d.base.arrays import Array
from pose2d.base.errors import UserError

HIPS_WRONG = (
    5,
)  # subjects whose pelvis markers are 442 mm apart, of others 242 to 283: no hip centres
# half the joint's width and the marker's radius
KNEE_IN_M = 0.057
ANKLE_IN_M = 0.042
ELBOW_IN_M = 0.045
SHOULDER_DOWN_M = 0.045  # from the acromion's marker to the head of the humerus
SPINES_SLOPE_RAD = math.radians(
    9.4
)  # of the pelvis' spines in quiet standing, where ours is level: median
FINGER_ABOVE_RAD = math.radians(
    22
)  # of the finger's marker, on the back of the hand, over the hand: median
PRONATED_RAD = math.radians(60)  # taken of a forearm whose elbow is too straight to show its hinge
HINGE_SHOWS_RAD = (0.35, 1.05)  # bends from which on a hinge begins to show, and shows clearly
FLAT_M = 0.05  # so far above its lowest place a foot is free of the floor
MOST_LOST = 0.2  # of a clip's frames may lack a marker
MISSING = -32768

_FILE = {
    "position_mm": Array("f", ("frames", "points", 3), finite=True),
    "point": Array("U", ("points",)),
    "clip_start": Array("i", ("clips + 1",), low=0),
    "clip_name": Array("U", ("clips",)),
    "clip_desc": Array("U", ("clips",)),
    "clip_subject": Array("i", ("clips",)),
    "clip_movement": Array("i", ("clips",)),
}


@dataclass(frozen=True)
class Side:
    letter: str  # first of its markers' names
    sign: float  # of the direction to the body's left
    leg: tuple[int, int, int, int]  # joints: hip, knee, ankle, toes
    arm: tuple[int, int, int, int, int]  # joints: collar, shoulder, elbow, wrist, hand


SIDES = (
    Side("L", 1.0, (1, 4, 7, 10), (13, 16, 18, 20, 22)),
    Side("R", -1.0, (2, 5, 8, 11), (14, 17, 19, 21, 23)),
)
_USED = (
    *("LFHD", "RFHD", "LBHD", "RBHD", "C7", "T10", "CLAV", "STRN", "LASI", "RASI", "LPSI", "RPSI"),
    *(
        side.letter + name
        for side in SIDES
        for name in ("SHO", "ELB", "WRA", "WRB", "FIN", "KNE", "ANK", "HEE", "TOE")
    ),
)
_X, _Y, _Z = torch.eye(3)


def load_ui_prmd(path: str | Path, body: Body) -> Motion:
    """Read the clips whose joints can be found; their names begin with the subject's number."""
    file = read_checked(path, _FILE, "a file of UI-PRMD's markers")
    points = list(map(str, file["point"]))
    if lacking := sorted(set(_USED) - set(points)):
        raise UserError(f"{path} lacks the markers {', '.join(lacking[:4])} of Plug-in Gait.")
    column = [points.index(name) for name in _USED]
    start, subject, movement = (
        file[name].astype(int) for name in ("clip_start", "clip_subject", "clip_movement")
    )
    if (
        len(start) != len(subject) + 1
        or (np.diff(start) < 1).any()
        or start[-1] > len(file["position_mm"])
    ):
        raise UserError(f"{path}: clip_start does not say which frames belong to which clip.")
    position = file["position_mm"][:, column]
    filled = {c: _fill_gaps(position[start[c] : start[c + 1]]) for c in range(len(subject))}
    clips = {
        c: metres
        for c, metres in filled.items()
        if metres is not None and subject[c] not in HIPS_WRONG
    }
    markers = [(subject[c], movement[c]) for c in clips]
    fitted: dict[int, tuple[Tensor, Tensor]] = {}
    for marker_set in sorted(set(markers)):  # one set of markers at a time
        members = [c for c, used in zip(clips, markers, strict=True) if used == marker_set]
        pose, root = _fit_markers(
            dict(zip(_USED, torch.cat([clips[c] for c in members]).unbind(1), strict=True)), body
        )
        lengths = [len(clips[c]) for c in members]
        fitted.update(
            zip(members, zip(pose.split(lengths), root.split(lengths), strict=True), strict=True)
        )
    order = sorted(fitted)
    return Motion(
        torch.cat([fitted[c][0] for c in order]),
        torch.cat([fitted[c][1] for c in order]),
        np.cumsum([0, *(len(fitted[c][0]) for c in order)]),
        tuple(f"{subject[c]}_{file['clip_name'][c]}" for c in order),
        25.0,
        tuple(str(file["clip_desc"][c]) for c in order),
    )


def _fill_gaps(position_mm: np.ndarray) -> Tensor | None:
    """Return a clip [T, M, 3] in metres, x left, y up, z front, gaps filled; None if too much is
    lost.
    """
    lost = (position_mm == MISSING).any(-1)
    if (lost.mean(0) > MOST_LOST).any():
        return None
    metres = position_mm[..., [1, 2, 0]].astype(np.float64) / 1000
    frame = np.arange(len(metres))
    for number in np.flatnonzero(lost.any(0)):
        present = ~lost[:, number]
        for axis in range(3):
            metres[:, number, axis] = np.interp(
                frame, frame[present], metres[present, number, axis]
            )
    return torch.from_numpy(metres.astype(np.float32))


def _frame(along: Tensor, beside: Tensor) -> Tensor:
    """Return [..., 3, 3]: a direction, and the part of another at right angles to it."""
    first = normalize(along, dim=-1)
    second = normalize(beside - (beside * first).sum(-1, keepdim=True) * first, dim=-1)
    return torch.stack((first, second, torch.linalg.cross(first, second)), -1)


def _turn(along: Tensor, beside: Tensor, rest_along: Tensor, rest_beside: Tensor) -> Tensor:
    """Return the rotation [N, 3, 3] that takes two directions at rest to these."""
    return _frame(along, beside) @ _frame(rest_along, rest_beside).mT


def _pitched(turn: Tensor, forwards_rad: Tensor | float) -> Tensor:
    return turn @ rotation_matrices(torch.as_tensor(forwards_rad) * _X)


def _fit_markers(marker: dict[str, Tensor], body: Body) -> tuple[Tensor, Tensor]:
    """Fit poses [N, 24, 3] and pelvis [N, 3] to one set of markers."""
    rest_joints = body.rest_joints.float()
    turn: dict[int, Tensor] = {}
    front = (marker["LASI"] + marker["RASI"]) / 2
    back = (marker["LPSI"] + marker["RPSI"]) / 2
    spines = _turn(front - back, marker["LASI"] - marker["RASI"], _Z, _X)
    turn[0] = _pitched(spines, -SPINES_SLOPE_RAD)
    up = marker["C7"] + marker["CLAV"] - marker["T10"] - marker["STRN"]
    ahead = marker["CLAV"] + marker["STRN"] - marker["C7"] - marker["T10"]
    turn[9] = _turn(up, ahead, _Y, _Z)
    third = rotation_matrices(matrix_to_axis_angle(turn[0].mT @ turn[9]) / 3)
    turn[3] = turn[0] @ third
    turn[6] = turn[3] @ third
    ahead = marker["LFHD"] + marker["RFHD"] - marker["LBHD"] - marker["RBHD"]
    head = _turn(ahead, marker["LFHD"] + marker["LBHD"] - marker["RFHD"] - marker["RBHD"], _Z, _X)
    tipped = torch.atan2(-head[:, 1, 2], head[:, 1, 1])  # forwards from upright
    turn[15] = _pitched(head, -tipped.median())  # most of the time people look ahead
    turn[12] = turn[9] @ rotation_matrices(matrix_to_axis_angle(turn[9].mT @ turn[15]) / 2)

    # Harrington 2007: the centres from the middle of the front spines, by the pelvis' width and
    # depth.
    width = (marker["LASI"] - marker["RASI"]).norm(dim=-1).median()
    depth = (front - back).norm(dim=-1).median()
    out = 0.33 * width + 0.0073
    down = 0.30 * width + 0.0109
    behind = 0.24 * depth + 0.0099
    hips = [
        front + rotate(spines, torch.stack((side.sign * out, -down, -behind))) for side in SIDES
    ]
    lengths = [
        _leg(marker, turn, rest_joints, side, hip) for side, hip in zip(SIDES, hips, strict=True)
    ]
    for side in SIDES:
        _arm(marker, turn, rest_joints, side)
    size = legs_m(rest_joints) / sum(lengths)
    root = size * (hips[0] + hips[1]) / 2 - rotate(
        turn[0], (rest_joints[1] + rest_joints[2]) / 2 - rest_joints[0]
    )
    return relative_poses(turn), root


def _leg(
    marker: dict[str, Tensor],
    turn: dict[int, Tensor],
    rest_joints: Tensor,
    side: Side,
    hip_m: Tensor,
) -> float:
    """Set the turns of thigh, shank and foot; return the leg's length."""
    hip, knee, ankle, toes = side.leg
    heel = marker[side.letter + "HEE"]
    toe = marker[side.letter + "TOE"]
    foot = toe - heel
    upwards = marker[side.letter + "KNE"] - marker[side.letter + "ANK"]
    of_foot = normalize(torch.linalg.cross(upwards, foot), dim=-1)
    hinge = normalize(of_foot + turn[0][:, :, 0], dim=-1)
    knee_m = marker[side.letter + "KNE"] - side.sign * KNEE_IN_M * hinge
    ankle_m = marker[side.letter + "ANK"] - side.sign * ANKLE_IN_M * hinge
    thigh = knee_m - hip_m
    shank = ankle_m - knee_m
    hinge = _hinge_axis(
        torch.linalg.cross(normalize(thigh, dim=-1), normalize(shank, dim=-1)), hinge
    )
    turn[hip] = _turn(thigh, hinge, rest_joints[knee] - rest_joints[hip], _X)
    turn[knee] = _turn(shank, hinge, rest_joints[ankle] - rest_joints[knee], _X)
    # A foot on the floor is level however the leg leans sideways; in the air it goes with the
    # shank.
    height = (heel + toe)[:, 1] / 2
    on_floor = torch.exp(-((height - height.quantile(0.05)).clamp(min=0) / FLAT_M).square())[
        :, None
    ]
    above = on_floor * _Y + (1 - on_floor) * normalize(-shank, dim=-1)
    turn[ankle] = turn[toes] = _turn(foot, above, _Z, _Y)
    return float(thigh.norm(dim=-1).median() + shank.norm(dim=-1).median())


def _hinge_axis(normal: Tensor, otherwise: Tensor) -> Tensor:
    """Return the hinge [N, 3] of a bend with this normal; another axis while the bend is too
    small.
    """
    low, high = HINGE_SHOWS_RAD
    bend = torch.asin(normal.norm(dim=-1, keepdim=True).clamp(max=1))
    share = ((bend - low) / (high - low)).clamp(0, 1)
    return normalize(torch.lerp(otherwise, normalize(normal, dim=-1), share), dim=-1)


def _arm(
    marker: dict[str, Tensor], turn: dict[int, Tensor], rest_joints: Tensor, side: Side
) -> None:
    """Set the turns of collar, upper arm, forearm and hand."""
    collar, shoulder, elbow, wrist, hand = side.arm
    acromion, radius, ulna = (marker[side.letter + name] for name in ("SHO", "WRA", "WRB"))
    shoulder_m = acromion - SHOULDER_DOWN_M * turn[9][:, :, 1]
    wrist_m = (radius + ulna) / 2
    thumbwards = radius - ulna
    rough = normalize(wrist_m - marker[side.letter + "ELB"], dim=-1)
    # Upwards at rest, which is where the elbow's outer side is when an arm is held out sideways.
    outer = rotate(
        rotation_matrices(-side.sign * PRONATED_RAD * rough), normalize(thumbwards, dim=-1)
    )
    upper = normalize(marker[side.letter + "ELB"] - shoulder_m, dim=-1)
    outer = _hinge_axis(-side.sign * torch.linalg.cross(upper, rough), outer)
    elbow_m = marker[side.letter + "ELB"] - ELBOW_IN_M * outer
    upper = elbow_m - shoulder_m
    fore = wrist_m - elbow_m
    outer = _hinge_axis(
        -side.sign * torch.linalg.cross(normalize(upper, dim=-1), normalize(fore, dim=-1)), outer
    )
    turn[shoulder] = _turn(upper, outer, rest_joints[elbow] - rest_joints[shoulder], _Y)
    hinged = _turn(fore, outer, rest_joints[wrist] - rest_joints[elbow], _Y)
    pronated = _turn(fore, thumbwards, rest_joints[wrist] - rest_joints[elbow], _Z)
    turn[elbow] = hinged @ rotation_matrices(matrix_to_axis_angle(hinged.mT @ pronated) / 2)
    finger = (
        math.cos(FINGER_ABOVE_RAD) * normalize(rest_joints[hand] - rest_joints[wrist], dim=0)
        + math.sin(FINGER_ABOVE_RAD) * _Y
    )
    turn[wrist] = turn[hand] = _turn(marker[side.letter + "FIN"] - wrist_m, thumbwards, finger, _Z)
    # The acromion over where it is with the arm hanging, in the thorax; arms that never hang are
    # levelled by the curve.
    place = rotate(turn[9].mT, acromion - marker["C7"])
    risen = collars.shoulder_rise_m(collars.arm_elevation_rad(turn[9], upper))[:, None] * _Y
    moved = place - (place - risen).median(0).values
    turn[collar] = turn[9] @ collars.collar_turn(rest_joints[shoulder] - rest_joints[collar], moved)
