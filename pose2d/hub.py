"""Find published checkpoints by model name, and download those that the Hugging Face hub holds.

Only repositories that state Apache-2.0 and files that cannot run code (safetensors) are downloaded.
The hub states size, SHA-256 and licence of a file before the download, its answer is checked, and
the file has to agree with it afterwards. The package `huggingface_hub` asks the hub; the file
itself is downloaded here, since the package restarts interrupted downloads from the beginning."""

import json
import logging
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.client import HTTPException
from pathlib import Path

from pose2d.base.errors import ResourceError, UserError
from pose2d.base.files import atomic_file, file_sha256
from pose2d.base.json_files import read_json

LICENCE = "apache-2.0"  # the only licence of files that are downloaded
MOST_BYTES = 20 << 30  # of a checkpoint; the largest, ViTPose-H, has 3.8 GB
_WEIGHTS = "model.safetensors"
# Name -> repository on the hub. Those of "plus" are mixtures of data sets, of which COCO's is taken.
REPOSITORIES = {
    "vitpose-s": "usyd-community/vitpose-plus-small",
    "vitpose-b": "usyd-community/vitpose-base",
    "vitpose-b-simple": "usyd-community/vitpose-base-simple",
    "vitpose-l": "usyd-community/vitpose-plus-large",
    "vitpose-h": "usyd-community/vitpose-plus-huge",
}
_MMPOSE = "mmpose.readthedocs.io, Model Zoo, 2D Body Keypoint"
# Beginning of a name -> where a person finds the file if no public repository on the hub holds it
BY_HAND = (
    (
        "rtmpose-",
        "github.com/open-mmlab/mmpose, folder projects/rtmpose, Model Zoo, Body 2d: the "
        "26-keypoint table for halpe26, the 17-keypoint table (body8) for coco17; click `pth` or "
        "`onnx` in the row of the size",
    ),
    (
        "vitpose-",
        "github.com/ViTAE-Transformer/ViTPose, README, the table of the data set (ViTPose+ for "
        "MPII and WholeBody); click the link in the column `weight`, which opens OneDrive",
    ),
    (
        "sbl-",
        "github.com/microsoft/human-pose-estimation.pytorch, README, Installation: the OneDrive or "
        "Google Drive folder of pretrained models, in it pose_coco or pose_mpii "
        f"(WholeBody: {_MMPOSE})",
    ),
    (
        "hrnet-",
        "github.com/leoxiaobin/deep-high-resolution-net.pytorch, README, Quick start: the Google "
        f"Drive or OneDrive model zoo, in it pose_coco or pose_mpii (WholeBody: {_MMPOSE})",
    ),
    (
        "rle-",
        "github.com/Jeff-sjtu/res-loglikelihood-regression, README, Model Zoo: the Google Drive "
        f"link; other trunks: {_MMPOSE}, Deeppose + RLE, click `ckpt`",
    ),
    ("ipr-", f"{_MMPOSE}, Integral Pose Regression, click `ckpt`"),
    (
        "poseur-",
        "github.com/aim-uofa/Poseur, README, the table of pretrained models: click the link of "
        "the row",
    ),
    (
        "spin",
        "github.com/nkolot/SPIN: run its fetch_data.sh, which leaves data/model_checkpoint.pt",
    ),
    (
        "cliff",
        "github.com/huawei-noah/noah-research, folder CLIFF, README: the Google Drive or Baidu "
        "link, in it res50-*.pt and hr48-*.pt",
    ),
)
_log = logging.getLogger(__name__)
_BLOCK = 1 << 20  # bytes read at once
_TIMEOUT_S = 30.0
_ATTEMPTS = 5  # requests in a row without new bytes before a download is given up
_REQUESTS = 50  # most requests of one command; a server may send only a little each time


@dataclass(frozen=True)
class Offer:
    """A published checkpoint as the hub describes it."""

    name: str  # of the model
    repository: str
    revision: str  # commit of the repository, 40 hexadecimal digits
    file: str
    url: str
    size: int  # bytes
    sha256: str  # 64 hexadecimal digits
    licence: str


def by_hand(name: str) -> str:
    """Say where a person finds the checkpoint of a model, and what to click."""
    return next((place for start, place in BY_HAND if name.startswith(start)), "")


def look_up(name: str) -> Offer:
    """Ask the hub for the size, digest and licence of a model's checkpoint."""
    repository = REPOSITORIES[name]
    endpoint = os.environ.get("HF_ENDPOINT")  # a mirror, as in huggingface_hub
    try:
        from huggingface_hub import HfApi, hf_hub_url
    except ImportError as error:
        raise ResourceError(
            f'this needs the package huggingface_hub: pip install "fitmesh[hub]" ({error}).'
        ) from error
    try:
        # token=False: these repositories are public, so the user's key is not sent.
        api = HfApi(endpoint, token=False)
        info = api.model_info(repository, files_metadata=True, timeout=_TIMEOUT_S)
    except Exception as error:  # no connection, a proxy, a moved repository, a nonsensical answer
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        raise UserError(
            f"the Hugging Face hub did not answer for {repository} ({reason.rstrip('.')}). On a "
            f"machine with a connection download {_WEIGHTS} from "
            f"https://huggingface.co/{repository}/tree/main, and pass it with --checkpoint."
        ) from error
    _check_licence(repository, info.tags)
    size, sha256 = _find_weights(repository, info.siblings)
    revision = _hexadecimal(repository, "the revision", info.sha, 40)
    url = hf_hub_url(repository, _WEIGHTS, revision=revision, endpoint=endpoint)
    return Offer(name, repository, revision, _WEIGHTS, url, size, sha256, LICENCE)


def _check_licence(repository: str, tags: object) -> None:
    """Refuse a repository whose tags do not state the licence Apache-2.0."""
    texts = [tag for tag in _list(tags) if isinstance(tag, str)]
    licences = [tag.removeprefix("license:") for tag in texts if tag.startswith("license:")]
    licence = licences[0] if licences else "none"
    if licence.lower() != LICENCE:
        raise UserError(
            f"{repository} states the licence {licence[:80]!r}, expected {LICENCE!r}. If it suits "
            "you, fetch the file by hand."
        )


def _find_weights(repository: str, siblings: object) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 of the weights among the files of a repository."""
    files = _list(siblings)
    weights = next((file for file in files if getattr(file, "rfilename", None) == _WEIGHTS), None)
    large_file = getattr(weights, "lfs", None)
    if large_file is None:
        raise UserError(
            f"{repository} has no {_WEIGHTS} with a digest any more: look at "
            f"https://huggingface.co/{repository}."
        )
    size = getattr(weights, "size", None)
    if type(size) is not int or not 0 < size <= MOST_BYTES:
        raise _nonsense(repository, f"the size of {_WEIGHTS}", "a number of bytes", size)
    sha256 = getattr(large_file, "sha256", None)
    return size, _hexadecimal(repository, f"the SHA-256 of {_WEIGHTS}", sha256, 64)


def _list(value: object) -> list[object]:
    """Return a list from the hub's answer; anything else counts as empty."""
    return value if isinstance(value, list) else []


def _hexadecimal(repository: str, what: str, value: object, digits: int) -> str:
    """Return text of so many hexadecimal digits, or refuse the hub's answer."""
    if not isinstance(value, str) or not re.fullmatch(rf"[0-9a-f]{{{digits}}}", value):
        raise _nonsense(repository, what, f"{digits} hexadecimal digits", value)
    return value


def _nonsense(repository: str, what: str, expected: str, value: object) -> UserError:
    """Return the error for an answer of the hub that cannot be right."""
    return UserError(
        f"the hub's answer for {repository} is wrong: {what} is {repr(value)[:80]}, expected "
        f"{expected}. Try again later; HF_ENDPOINT, if set, must name a mirror of the hub."
    )


def cache_folder() -> Path:
    """Return the folder that FITMESH_CACHE names, or fitmesh's in the user's cache folder."""
    if folder := os.environ.get("FITMESH_CACHE"):
        return Path(folder)
    user_cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(user_cache or Path.home() / ".cache") / "fitmesh"


def cached(name: str) -> tuple[Path, str] | None:
    """Return a checkpoint that was downloaded before and is unchanged, and its SHA-256."""
    path = _cache_path(name)
    try:
        sha256 = read_json(path.with_suffix(".json")).item("sha256").text()
    except UserError:
        return None
    return (path, sha256) if path.is_file() and file_sha256(path) == sha256 else None


def fetch(offer: Offer, tick: Callable[[int], None] = lambda size: None) -> Path:
    """Download a checkpoint, or continue an interrupted download.

    `tick` is called with the number of bytes that arrived."""
    target = _cache_path(offer.name)
    # The name depends on the content, so a download of other content is never continued.
    part = target.with_name(f"{offer.sha256[:16]}.part")
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
            problem = _continue_download(offer, part, tick)
            before = size
            size = part.stat().st_size
            failures = failures + 1 if size <= before else 0
            _log.debug("%s: %d bytes so far (%s)", offer.url, size, problem)
        if size < offer.size:
            raise UserError(
                f"the download of {offer.url} broke off after {size / 1e6:.1f} of "
                f"{offer.size / 1e6:.1f} MB ({problem}). The same command continues from there."
            )
        if size != offer.size or file_sha256(part) != offer.sha256:
            part.unlink()
            raise UserError(
                f"the file from {offer.url} is not the published one: its SHA-256 differs. It was "
                "removed; try again. If that does not help, something between here and the hub "
                "changes files."
            )
        with atomic_file(target.with_suffix(".json")) as note:
            note.write_text(json.dumps(asdict(offer), indent=1) + "\n")
        os.replace(part, target)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"cannot write {target}: {reason}. FITMESH_CACHE names another folder.", file=target
        ) from error
    return target


def _continue_download(offer: Offer, part: Path, tick: Callable[[int], None]) -> str:
    """Append the missing bytes to `part`, and return why the download ended."""
    have = part.stat().st_size
    request = urllib.request.Request(offer.url, headers={"Range": f"bytes={have}-"} if have else {})
    with part.open("ab") as file:
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                if have and answer.status != 206:  # the server sends the file from the beginning
                    file.truncate(0)
                    tick(-have)
                    have = 0
                # One byte more than stated is enough to notice a file that is too long.
                while block := answer.read(min(_BLOCK, offer.size + 1 - have)):
                    file.write(block)
                    tick(len(block))
                    have += len(block)
        except (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError) as error:
            return str(error) or type(error).__name__
    return "the connection was closed"


def _cache_path(name: str) -> Path:
    """Return where the checkpoint of a model is kept."""
    return cache_folder() / "models" / f"{name}.safetensors"
