"""Published checkpoints by name: where each one is, and getting those that the Hugging Face hub
holds.

Only repositories that state Apache-2.0 and files that cannot run code (safetensors) are fetched.
What the hub says of a file (size, SHA-256, licence) is known before a byte of it is downloaded, and
the file has to agree with it afterwards. The package `huggingface_hub` asks the hub; the file
itself is read here, since the package starts a broken-off download from the beginning."""

import json
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.client import HTTPException
from pathlib import Path

from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, file_sha256
from pose2d.base.json_files import read_json

LICENCE = "apache-2.0"  # the only one that is fetched without asking further
_WEIGHTS = "model.safetensors"
# Name -> repository on the hub. Those of "plus" are mixtures of several data sets, of which COCO's
# part is taken.
REPOSITORIES = {
    "vitpose-s": "usyd-community/vitpose-plus-small",
    "vitpose-b": "usyd-community/vitpose-base",
    "vitpose-b-simple": "usyd-community/vitpose-base-simple",
    "vitpose-l": "usyd-community/vitpose-plus-large",
    "vitpose-h": "usyd-community/vitpose-plus-huge",
}
_MMPOSE = "mmpose.readthedocs.io, Model Zoo, 2D Body Keypoint"
# The beginning of a name -> where a person finds the file, for what no public repository on the hub
# holds.
BY_HAND = (
    (
        "rtmpose-",
        "github.com/open-mmlab/mmpose, folder projects/rtmpose, Model Zoo, Body 2d: the 26-keypoint table for "
        "halpe26, the 17-keypoint table (body8) for coco17; click `pth` or `onnx` in the row of the size",
    ),
    (
        "vitpose-",
        "github.com/ViTAE-Transformer/ViTPose, README, the table of the data set (ViTPose+ for MPII and "
        "WholeBody); click the link in the column `weight`, which opens OneDrive",
    ),
    (
        "sbl-",
        "github.com/microsoft/human-pose-estimation.pytorch, README, Installation: the OneDrive or Google Drive "
        "folder of pretrained models, in it pose_coco or pose_mpii (WholeBody: " + _MMPOSE + ")",
    ),
    (
        "hrnet-",
        "github.com/leoxiaobin/deep-high-resolution-net.pytorch, README, Quick start: the Google Drive or "
        "OneDrive model zoo, in it pose_coco or pose_mpii (WholeBody: " + _MMPOSE + ")",
    ),
    (
        "rle-",
        "github.com/Jeff-sjtu/res-loglikelihood-regression, README, Model Zoo: the Google Drive link; "
        f"other trunks: {_MMPOSE}, Deeppose + RLE, click `ckpt`",
    ),
    ("ipr-", f"{_MMPOSE}, Integral Pose Regression, click `ckpt`"),
    (
        "poseur-",
        "github.com/aim-uofa/Poseur, README, the table of pretrained models: click the link of the row",
    ),
    (
        "spin",
        "github.com/nkolot/SPIN: run its fetch_data.sh, which leaves data/model_checkpoint.pt",
    ),
    (
        "cliff",
        "github.com/huawei-noah/noah-research, folder CLIFF, README: the Google Drive or Baidu link, in it "
        "res50-*.pt and hr48-*.pt",
    ),
)
_log = logging.getLogger(__name__)
_BLOCK = 1 << 20  # bytes read at once
_TIMEOUT_S = 30.0
_ATTEMPTS = 5  # in a row that bring nothing new, before a download is given up
_REQUESTS = 50  # of one command: a server may send a little each time, or now more and now less


@dataclass(frozen=True)
class Offer:
    name: str  # of the model
    repository: str
    revision: str  # commit of the repository
    file: str
    url: str
    size: int  # bytes
    sha256: str
    licence: str


def by_hand(name: str) -> str:
    """Where a person finds the checkpoint, and what to click."""
    return next((where for start, where in BY_HAND if name.startswith(start)), "")


def look_up(name: str) -> Offer:
    """Ask the hub for a checkpoint's size, digest and licence."""
    # a mirror, as the package has it
    repository = REPOSITORIES[name]
    endpoint = os.environ.get("HF_ENDPOINT")
    try:
        from huggingface_hub import HfApi, hf_hub_url
    except ImportError as error:
        raise UserError(
            f'this needs the package huggingface_hub: pip install "fitmesh[hub]" ({error}).'
        ) from error
    try:
        # token=False: these repositories are public, and nobody's key is needed.
        info = HfApi(endpoint, token=False).model_info(
            repository, files_metadata=True, timeout=_TIMEOUT_S
        )
    except (
        Exception
    ) as error:  # no connection, a proxy, a repository that has moved: the package has many errors
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise UserError(
            f"the Hugging Face hub did not answer for {repository} ({reason.rstrip('.')}). On a machine with a "
            f"connection download {_WEIGHTS} from https://huggingface.co/{repository}/tree/main, and pass it with "
            "--checkpoint."
        ) from error
    stated = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
    licence = stated[0] if stated else "none"
    if licence.lower() != LICENCE:
        raise UserError(
            f"{repository} states the licence {licence!r}, expected {LICENCE!r}. If it suits you, fetch it by hand."
        )
    file = next((one for one in info.siblings or () if one.rfilename == _WEIGHTS), None)
    if file is None or file.lfs is None or not file.size or not info.sha:
        raise UserError(
            f"{repository} has no {_WEIGHTS} with a digest any more: look at https://huggingface.co/{repository}."
        )
    url = hf_hub_url(repository, _WEIGHTS, revision=info.sha, endpoint=endpoint)
    return Offer(name, repository, info.sha, _WEIGHTS, url, file.size, file.lfs.sha256, licence)


def cache_folder() -> Path:
    """FITMESH_CACHE, or the user's own cache folder."""
    if given := os.environ.get("FITMESH_CACHE"):
        return Path(given)
    base = (
        os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    )
    return Path(base) / "fitmesh"


def cached(name: str) -> tuple[Path, str] | None:
    """A checkpoint that was fetched before and is unchanged, and its SHA-256."""
    path = _place(name)
    try:
        stated = str(read_json(path.with_suffix(".json")).object()["sha256"])
    except (UserError, KeyError):
        return None
    return (path, stated) if path.is_file() and file_sha256(path) == stated else None


def fetch(offer: Offer, tick: Callable[[int], None] = lambda size: None) -> Path:
    """Download a checkpoint, or go on where an earlier download broke off; `tick` is told how many
    bytes came.
    """
    target = _place(offer.name)
    part = target.with_name(
        f"{offer.sha256[:16]}.part"
    )  # of this very content: another is never continued
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        before = 0
        size = part.stat().st_size
        failures = 0
        problem = ""
        tick(size)
        for _ in range(_REQUESTS):
            if size >= offer.size or failures >= _ATTEMPTS:
                break
            problem = _read_on(offer, part, tick)
            before = size
            size = part.stat().st_size
            failures = failures + 1 if size <= before else 0
            _log.debug("%s: %d bytes so far (%s)", offer.url, size, problem)
        if size < offer.size:
            raise UserError(
                f"the download of {offer.url} broke off after {size / 1e6:.1f} of {offer.size / 1e6:.1f} MB "
                f"({problem}). The same command goes on from there."
            )
        if size != offer.size or file_sha256(part) != offer.sha256:
            part.unlink()
            raise UserError(
                f"what came from {offer.url} is not the published file: its SHA-256 is another. It was removed; try "
                "again, and if it stays so, something between here and the hub changes files."
            )
        with atomic_file(target.with_suffix(".json")) as note:
            note.write_text(json.dumps(asdict(offer), indent=1) + "\n")
        os.replace(part, target)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"cannot write {target}: {reason}. FITMESH_CACHE names another folder."
        ) from error
    return target


def _read_on(offer: Offer, part: Path, tick: Callable[[int], None]) -> str:
    """Append what is missing to `part`; why it ended early, if it did."""
    have = part.stat().st_size
    request = urllib.request.Request(offer.url, headers={"Range": f"bytes={have}-"} if have else {})
    with part.open("ab") as file:
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                if have and answer.status != 206:  # the server knows no parts: from the beginning
                    file.truncate(0)
                    tick(-have)
                    have = 0
                while block := answer.read(
                    min(_BLOCK, offer.size + 1 - have)
                ):  # one byte more than stated tells
                    file.write(block)
                    tick(len(block))
                    have += len(block)
        except (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError) as error:
            return str(error) or type(error).__name__
    return "the connection was closed"


def _place(name: str) -> Path:
    return cache_folder() / "models" / f"{name}.safetensors"
