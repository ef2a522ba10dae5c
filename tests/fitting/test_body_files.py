"""Bodies from files: every usual name and layout, and clear words for everything else."""

import os
import pickle
import sys
import zipfile
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse
import smplx
import torch

import fitting
from fitting.body import smpl
from fitting.body.open_body import OPEN_BODY
from pose2d.base.errors import UserError

BODY_PARENTS = [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19]
HAND = [-1, 0, 1] * 5  # three joints a finger, the first on the wrist


def tree(family: str) -> list[int]:
    if family == "SMPL":
        return [*BODY_PARENTS, 20, 21]
    parents = list(BODY_PARENTS) if family == "SMPL-H" else [*BODY_PARENTS, 15, 15, 15]
    for wrist in (20, 21):
        start = len(parents)
        parents += [wrist if joint % 3 == 0 else start + joint - 1 for joint in range(15)]
    return parents


def random_body(family: str, directions: int = 10) -> dict[str, np.ndarray]:
    """Random numbers in the layout of a family's files."""
    generator = np.random.default_rng(len(family))
    parents = tree(family)
    vertices = 10475 if family == "SMPL-X" else 6890
    joints = len(parents)

    def normal(scale, *size):
        return scale * generator.standard_normal(size, dtype=np.float32)

    regressor = np.zeros((joints, vertices), np.float32)
    for joint in range(joints):
        regressor[joint, generator.choice(vertices, 5, replace=False)] = 0.2
    weights = np.zeros((vertices, joints), np.float32)
    for share in (0.7, 0.3):
        weights[np.arange(vertices), generator.integers(joints, size=vertices)] += share
    root = np.uint32(2**32 - 1)
    return {
        "v_template": normal(0.5, vertices, 3),
        "shapedirs": normal(0.01, vertices, 3, directions),
        "posedirs": normal(0.001, vertices, 3, 9 * (joints - 1)),
        "J_regressor": regressor,
        "weights": weights,
        "kintree_table": np.array([[root, *parents[1:]], range(joints)], dtype=np.uint32),
        "f": generator.integers(vertices, size=(20, 3)).astype(np.uint32),
    }


@pytest.fixture(scope="module")
def smpl_arrays():
    return random_body("SMPL")


def assert_body(body, arrays):
    np.testing.assert_array_equal(body.v_template, arrays["v_template"].astype(np.float32))
    np.testing.assert_array_equal(body.shapedirs, arrays["shapedirs"][:, :, :10].astype(np.float32))
    np.testing.assert_array_equal(body.faces, arrays["f"].astype(np.int64))


def test_the_open_body_is_the_default():
    body = fitting.load_body()
    assert (body.name, body.v_template.shape, body.faces.shape) == ("open", (6800, 3), (13588, 3))
    assert body.shape_size == 16
    assert body.posedirs is None
    assert body.h36m_regressor.shape == (17, 6800)
    assert {"nose", "lear", "LHeel", "rindex"} <= body.vertex_picks.keys()
    assert 1.5 < float(body.v_template[:, 1].max() - body.v_template[:, 1].min()) < 1.9


def test_the_open_body_is_a_closed_surface_seen_from_outside_and_the_same_left_and_right():
    arrays = np.load(OPEN_BODY)
    template = arrays["v_template"].astype(float)
    faces = arrays["f"]
    mirror = arrays["mirror"]
    for rows in (
        arrays["weights"],
        arrays["J_regressor"],
        arrays["J_regressor_coco17"],
        arrays["J_regressor_h36m17"],
    ):
        np.testing.assert_allclose(rows.sum(1), 1, atol=1e-5)
        assert rows.min() >= 0
    sides = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    assert len(np.unique(sides, axis=0)) == len(sides)  # each edge is passed once in each direction
    np.testing.assert_array_equal(np.unique(sides, axis=0), np.unique(sides[:, ::-1], axis=0))
    a, b, c = (template[faces[:, corner]] for corner in range(3))
    litres = 1e3 * np.einsum("fc,fc->", a, np.cross(b, c)) / 6
    assert 55 < litres < 85
    np.testing.assert_array_equal(mirror[mirror], np.arange(len(mirror)))
    np.testing.assert_allclose(template[mirror] * [-1, 1, 1], template, atol=1e-6)


def test_the_open_body_can_also_be_given_as_a_file(tmp_path):
    (tmp_path / "mine.npz").write_bytes(OPEN_BODY.read_bytes())
    torch.testing.assert_close(
        fitting.load_body(tmp_path / "mine.npz").v_template, fitting.load_body().v_template
    )


def test_the_open_body_needs_no_smplx(monkeypatch, tmp_path, smpl_arrays):
    for name in [name for name in sys.modules if name.split(".")[0] == "smplx"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "smplx", None)  # importing it now fails
    body = fitting.load_body()
    assert body(torch.zeros(1, 24, 3), vertices=True).vertices.shape == (1, 6800, 3)
    (tmp_path / "SMPL_MALE.pkl").write_bytes(pickle.dumps(smpl_arrays))
    with pytest.raises(UserError, match="pip install smplx"):
        fitting.load_body(tmp_path / "SMPL_MALE.pkl")


def test_a_licensed_body_says_once_what_its_licence_means(tmp_path, smpl_arrays, caplog):
    smpl._tell_licence.cache_clear()
    for name in ("SMPL_MALE.pkl", "SMPL_FEMALE.pkl"):
        (tmp_path / name).write_bytes(pickle.dumps(smpl_arrays))
        fitting.load_body(tmp_path / name)
    fitting.load_body()
    assert caplog.text.count("non-commercial use") == 1


def test_an_old_pickle_with_chumpy_and_sparse_entries_loads(monkeypatch, tmp_path, smpl_arrays):
    """What SMPL's own site gives: protocol 2, chumpy shape directions, a sparse regressor, extra
    entries.
    """
    kind = type("Ch", (), {"__module__": "chumpy.ch"})
    for name in ("chumpy", "chumpy.ch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["chumpy.ch"].Ch = kind
    shapedirs = kind()
    shapedirs.x = smpl_arrays["shapedirs"].astype(np.float64)
    content = {
        **smpl_arrays,
        "shapedirs": shapedirs,
        "J_regressor": scipy.sparse.csc_matrix(smpl_arrays["J_regressor"]),
        "bs_type": "lrotmin",
        "J": np.zeros((24, 3)),
    }
    text = pickle.dumps(content, protocol=2).replace(b"scipy.sparse._csc", b"scipy.sparse.csc")
    (tmp_path / "basicModel_f_lbs_10_207_0_v1.0.0.pkl").write_bytes(text)
    monkeypatch.undo()
    body = fitting.load_body(tmp_path, gender="female")
    assert body.name == "SMPL"
    assert_body(body, smpl_arrays)
    np.testing.assert_array_equal(body.J_regressor, smpl_arrays["J_regressor"])


@pytest.mark.parametrize(
    "name",
    [
        "SMPL_MALE.pkl",
        "SMPL_MALE.npz",
        "smpl/SMPL_MALE.pkl",
        "models/smpl/SMPL_MALE.pkl",
        "basicModel_m_lbs_10_207_0_v1.0.0.pkl",
        "basicmodel_m_lbs_10_207_0_v1.1.0.pkl",
        "smpl/models/basicmodel_m_lbs_10_207_0_v1.1.0.pkl",
    ],
)
def test_a_folder_with_a_usual_name_is_enough(tmp_path, smpl_arrays, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".pkl":
        path.write_bytes(pickle.dumps(smpl_arrays, protocol=2))
    else:
        np.savez(path, **smpl_arrays)
    assert_body(fitting.load_body(tmp_path, gender="male"), smpl_arrays)
    with pytest.raises(UserError, match=r"no body file for gender 'female'; it has .*(?i:m_|male)"):
        fitting.load_body(tmp_path, gender="female")


def test_the_gender_picks_the_file(tmp_path, smpl_arrays):
    for shift, gender in enumerate(("NEUTRAL", "MALE", "FEMALE")):
        moved = {**smpl_arrays, "v_template": smpl_arrays["v_template"] + shift}
        (tmp_path / f"SMPL_{gender}.pkl").write_bytes(pickle.dumps(moved))
    for shift, gender in enumerate(("neutral", "male", "female")):
        body = fitting.load_body(tmp_path, gender=gender)
        np.testing.assert_array_equal(body.v_template, smpl_arrays["v_template"] + shift)


def test_smpl_h_moves_as_in_smplx_with_fingers_at_rest(tmp_path):
    arrays = random_body("SMPL-H", directions=16)
    path = tmp_path / "smplh" / "male" / "model.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, **arrays, bs_type=np.array("lrotmin", dtype=object))
    for folder in (tmp_path, tmp_path / "smplh", tmp_path / "smplh" / "male"):
        body = fitting.load_body(folder, gender="male")
        assert body.name == "SMPL-H"
    hands = {f"hands_components{side}": np.zeros((45, 45)) for side in "lr"}
    hands |= {f"hands_mean{side}": np.zeros(45) for side in "lr"}
    from types import SimpleNamespace

    theirs = smplx.SMPLH(
        "", data_struct=SimpleNamespace(**arrays, **hands), use_pca=False, flat_hand_mean=True
    )
    compare(body, theirs, middle_fingers=[25, 40], picks=52)


def test_smpl_x_moves_as_in_smplx_with_fingers_and_face_at_rest(tmp_path):
    arrays = random_body("SMPL-X", directions=20)
    path = tmp_path / "SMPLX_NEUTRAL.npz"
    np.savez(path, **arrays)
    body = fitting.load_body(tmp_path)
    assert body.name == "SMPL-X"
    extra = {"lmk_faces_idx": np.zeros(51, int), "lmk_bary_coords": np.zeros((51, 3))}
    extra |= {f"hands_components{side}": np.zeros((45, 45)) for side in "lr"}
    extra |= {f"hands_mean{side}": np.zeros(45) for side in "lr"}
    np.savez(tmp_path / "theirs.npz", **arrays, **extra)
    theirs = smplx.SMPLX(str(tmp_path / "theirs.npz"), use_pca=False, flat_hand_mean=True)
    compare(body, theirs, middle_fingers=[28, 43], picks=55)


def compare(body, theirs, middle_fingers, picks):
    """Both bodies in one random pose; `picks` is where smplx appends the named vertices to its
    joints.
    """
    generator = torch.Generator().manual_seed(0)
    pose = 0.5 * torch.randn(1, 24, 3, generator=generator)
    shape = torch.randn(1, 10, generator=generator)
    translation = torch.randn(1, 3, generator=generator)
    with torch.no_grad():
        wanted = theirs(
            betas=shape,
            global_orient=pose[:, 0],
            body_pose=pose[:, 1:22].flatten(1),
            transl=translation,
        )
    ours = body(pose, shape, translation, vertices=True)
    torch.testing.assert_close(ours.vertices, wanted.vertices, atol=1e-5, rtol=0)
    numbers = [*range(22), *middle_fingers]
    torch.testing.assert_close(ours.joints, wanted.joints[:, numbers], atol=1e-5, rtol=0)
    face = [picks, picks + 2, picks + 1, picks + 4, picks + 3]
    limbs = [16, 17, 18, 19, 20, 21, 1, 2, 4, 5, 7, 8]
    torch.testing.assert_close(
        ours.keypoints[:, :17], wanted.joints[:, face + limbs], atol=1e-5, rtol=0
    )
    hands = 0.5 * torch.randn(1, 30, 3, generator=generator)
    with torch.no_grad():
        wanted = theirs(
            betas=shape,
            global_orient=pose[:, 0],
            body_pose=pose[:, 1:22].flatten(1),
            transl=translation,
            left_hand_pose=hands[:, :15].flatten(1),
            right_hand_pose=hands[:, 15:].flatten(1),
        )
    bent = body(pose, shape, translation, vertices=True, hands=hands)
    torch.testing.assert_close(bent.vertices, wanted.vertices, atol=1e-5, rtol=0)
    knuckle = middle_fingers[0]  # the middle finger's; MediaPipe's 9 to 11 are its joints
    torch.testing.assert_close(
        bent.hands[:, 0, 9:12], wanted.joints[:, knuckle : knuckle + 3], atol=1e-5, rtol=0
    )


class Payload:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("suffix", ["pkl", "npz"])
@pytest.mark.parametrize("entry", ["weights", "extra"])
def test_a_body_file_that_runs_code_does_not_run(tmp_path, smpl_arrays, suffix, entry):
    mark = tmp_path / "it ran"
    payload = Payload(f"touch '{mark}'")
    path = tmp_path / f"SMPL_MALE.{suffix}"
    if suffix == "pkl":
        path.write_bytes(pickle.dumps({**smpl_arrays, entry: payload}, protocol=2))
    else:
        held = np.empty((), object)
        held[()] = payload
        np.savez(path, **{**smpl_arrays, entry: held})
    if (suffix, entry) == ("npz", "extra"):  # an entry that nobody reads
        assert_body(fitting.load_body(path), smpl_arrays)
    else:
        refused = (
            "was refused: it asks for posix"
            if suffix == "pkl"
            else "cannot be read: weights holds Python objects"
        )
        with pytest.raises(UserError, match=rf"SMPL_MALE\.{suffix} {refused}"):
            fitting.load_body(path)
    assert not mark.exists()


def test_a_missing_file_names_the_sites_and_the_expected_names(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "SMPL_NEUTRAL.pkl", tmp_path / "empty"):
        with pytest.raises(UserError) as raised:
            fitting.load_body(path)
        for word in (
            str(path),
            "smpl.is.tue.mpg.de",
            "smpl-x.is.tue.mpg.de",
            "mano.is.tue.mpg.de",
            "SMPL_NEUTRAL.pkl",
            "basicModel_neutral_lbs_10_207_0_v1.0.0.pkl",
            "SMPLX_NEUTRAL.npz",
        ):
            assert word in str(raised.value)


@pytest.mark.parametrize("keep", [0, 10, 0.3, 0.9, 0.999])
def test_a_truncated_npz_is_a_user_error(tmp_path, keep):
    whole = OPEN_BODY.read_bytes()
    path = tmp_path / "cut.npz"
    path.write_bytes(whole[: keep if isinstance(keep, int) else int(keep * len(whole))])
    with pytest.raises(UserError, match=r"cut\.npz cannot be read"):
        fitting.load_body(path)


def test_a_flipped_byte_in_an_npz_is_a_user_error(tmp_path):
    content = bytearray(OPEN_BODY.read_bytes())
    with zipfile.ZipFile(OPEN_BODY) as archive:
        start = archive.getinfo("shapedirs.npy").header_offset + 1000
    content[start] ^= 0xFF
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.npz"):
        fitting.load_body(tmp_path / "bad.npz")


@pytest.mark.parametrize("name", ["x.npz", "x.pkl", "x.obj", "x"])
def test_another_kind_of_file_is_a_user_error(tmp_path, name):
    np.save(tmp_path / "array.npy", np.zeros(3))
    for content in (b"solid cube\n", (tmp_path / "array.npy").read_bytes(), pickle.dumps([1, 2])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            UserError, match=rf"{name} {'cannot be read' if name == 'x.npz' else 'is'}"
        ):
            fitting.load_body(tmp_path / name)


@pytest.mark.parametrize(
    ("entry", "change", "words"),
    [
        ("weights", None, "lacks weights"),
        ("v_template", lambda a: a[:-1], "J_regressor has size|shapedirs has size"),
        ("v_template", lambda a: a[:, :2], "v_template has size"),
        ("posedirs", lambda a: a[:, :, :-1], "posedirs has size"),
        ("shapedirs", lambda a: a[:, 0], "shapedirs has size"),
        ("weights", lambda a: a * np.nan, "weights has a number that is not finite"),
        ("weights", lambda a: a.astype(str), "weights holds <U.*, not numbers"),
        ("f", lambda a: a + 7000, "f names vertices that do not exist"),
        ("kintree_table", lambda a: a[:, ::-1], "kintree_table is not the joint tree"),
    ],
)
def test_arrays_that_do_not_fit_together_are_named(tmp_path, smpl_arrays, entry, change, words):
    changed = dict(smpl_arrays)
    if change is None:
        del changed[entry]
    else:
        changed[entry] = change(changed[entry])
    (tmp_path / "SMPL_MALE.pkl").write_bytes(pickle.dumps(changed))
    with pytest.raises(UserError, match=words):
        fitting.load_body(tmp_path / "SMPL_MALE.pkl")


def test_a_body_of_unknown_size_is_refused_since_its_keypoints_are_unknown(tmp_path):
    arrays = {name: array for name, array in np.load(OPEN_BODY).items() if "coco" not in name}
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match="6800 vertices and 24 joints"):
        fitting.load_body(tmp_path / "x.npz")


def test_an_unknown_gender_is_a_user_error():
    with pytest.raises(UserError, match="unknown gender 'm'"):
        fitting.load_body(gender="m")
