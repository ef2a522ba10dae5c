"""People and scene as one set of triangles, and the light they send to the camera at a moment."""

from dataclasses import dataclass

import numpy as np

from eval3dpw.synth import light, scene
from eval3dpw.synth.figure import Figure
from eval3dpw.synth.light import Shadows
from eval3dpw.synth.pixels import Sight, Surfaces, look, shade
from eval3dpw.synth.scene import Scene
from fitting.camera import Camera
from fitting.render.shading import vertex_normals

_SHADOW_RADIUS_M = 4.5


@dataclass(frozen=True)
class Stage:
    """Faces of people first, person after person, then the ground, then everything else."""

    scene: Scene
    surfaces: Surfaces
    still_m: np.ndarray  # [S, 3] vertices of what does not move, which come after people's
    still_normals: np.ndarray  # [S, 3]
    person_faces: np.ndarray  # [P + 1] first face of each person, and the end
    casting: np.ndarray  # [C, 3] int32 faces that throw shadows

    def vertices_m(self, people_m: list[np.ndarray]) -> np.ndarray:
        """All vertices in the world, from each person's [V, 3]."""
        return np.concatenate((*people_m, self.still_m))

    def shadows(self, vertices_m: np.ndarray, center_m: np.ndarray) -> Shadows:
        return light.cast(vertices_m, self.casting, self.scene.light, center_m, _SHADOW_RADIUS_M)

    def see(self, vertices_m: np.ndarray, camera: Camera, world_to_cam: np.ndarray) -> Sight:
        return look(vertices_m, self.surfaces.faces, camera, world_to_cam)

    def light(
        self,
        vertices_m: np.ndarray,
        camera: Camera,
        world_to_cam: np.ndarray,
        shadows: Shadows,
        shadow_shift_px: np.ndarray,
    ) -> np.ndarray:
        """[H, W, 3] linear."""
        moving = len(vertices_m) - len(self.still_m)
        people = self.surfaces.faces[: self.person_faces[-1]]
        normals = np.concatenate((vertex_normals(vertices_m[:moving], people), self.still_normals))
        sight = self.see(vertices_m, camera, world_to_cam)
        return shade(
            sight, self.surfaces, normals, camera, world_to_cam, self.scene.light, shadows, self.scene.far,
            shadow_shift_px * self.scene.light.softness_px,
        )  # fmt: skip

    def owner(self, sight: Sight) -> np.ndarray:
        """[H, W] whom each pixel shows: a person's number, -1 for anything that stands before or around, -2 for none.

        The ground hides nobody, so it counts as none.
        """
        face = sight.face
        person = np.searchsorted(self.person_faces, face, side="right") - 1
        owner = np.where(face < self.person_faces[-1], person, -1)
        return np.where((face < 0) | self.surfaces.ground[face], -2, owner)


def build(figures: list[Figure], around: Scene, rng: np.random.Generator) -> Stage:
    faces, vertices, uv, ground, casts, tile = [], 0, [], [], [], []
    for figure in figures:
        faces.append(figure.faces + vertices)
        count = figure.rest.shape[1]
        vertices += count
        uv.append(np.zeros((count, 2)))
        ground.append(np.zeros(len(figure.faces), bool))
        casts.append(np.ones(len(figure.faces), bool))
        tile.append(np.zeros(len(figure.faces)))
    atlas, tiles = scene.draw_tiles(around.solids, rng)
    first_still = vertices
    for number, (solid, which) in enumerate(zip(around.solids, tiles, strict=True)):
        faces.append(solid.faces + vertices)
        vertices += len(solid.vertices_m)
        uv.append(solid.uv_m)
        ground.append(np.full(len(solid.faces), number == 0))
        casts.append(np.full(len(solid.faces), solid.casts))
        tile.append(np.full(len(solid.faces), which))
    all_faces, is_ground = np.concatenate(faces).astype(np.int32), np.concatenate(ground)
    still = np.concatenate([solid.vertices_m for solid in around.solids])
    ends = np.cumsum([0, *(len(figure.faces) for figure in figures)])
    surfaces = Surfaces(
        faces=all_faces,
        paint=np.concatenate([figure.paint for figure in figures]),
        tile=np.concatenate(tile).astype(np.int32),
        uv_m=np.concatenate(uv),
        ground=is_ground,
        see_through=is_ground & around.ground_is_photo,
        atlas=atlas,
    )
    still_faces = all_faces[ends[-1] :] - np.int32(first_still)
    return Stage(
        scene=around,
        surfaces=surfaces,
        still_m=still,
        still_normals=vertex_normals(still, still_faces),
        person_faces=ends,
        casting=np.ascontiguousarray(all_faces[np.concatenate(casts)]),
    )
