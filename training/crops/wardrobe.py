"""Dress bodies of any shape in a changing set of outfits."""

from dataclasses import replace

import numpy as np
import torch
from scipy.spatial import cKDTree

from eval3dpw.synth.clothed_people import ClothedBody, clothed_body
from eval3dpw.synth.outfits import draw_outfit
from fitting.body import Body

OUTFITS = 60


class Wardrobe:
    """Clothed bodies of the mean shape; each vertex follows the shape of the body's nearest one."""

    def __init__(self, body: Body, rng: np.random.Generator) -> None:
        self.body = body
        self.rng = rng
        self.tree = cKDTree(body.v_template.numpy())
        self.outfits: list[tuple[ClothedBody, torch.Tensor]] = []

    def renew(self) -> None:
        clothed = clothed_body(self.body, torch.zeros(10), draw_outfit(self.rng), self.rng)
        own = np.arange(clothed.body_vertices)
        extra = clothed.rest[:, clothed.body_vertices :].T.numpy()
        follows = np.concatenate((own, self.tree.query(extra)[1])) if len(extra) else own
        if len(self.outfits) < OUTFITS:
            self.outfits.append((clothed, torch.from_numpy(follows)))
        else:
            self.outfits[self.rng.integers(OUTFITS)] = clothed, torch.from_numpy(follows)

    def dress(self, shape: torch.Tensor) -> ClothedBody:
        clothed, follows = self.outfits[self.rng.integers(len(self.outfits))]
        moved = torch.einsum("vcs,s->vc", self.body.shapedirs, shape)
        return replace(clothed, rest=clothed.rest + moved[follows].T.float())
