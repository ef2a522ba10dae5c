"""Hands after the body's fit: fingers from the keypoints of hands, each hand by itself, all frames
of a segment together (`fingers`), and flat palms of people on their hands (`palms`).

The unknowns of a frame are a small rotation of the palm beside the body's wrist, a shift that is
discarded (the wrist's own error, and the hand's size, which looks like depth) and the 25 angles of
`Fingers`. What pulls on them:

- the 2D keypoints, with their stated errors and what a hand of average proportions leaves
  unexplained, robustly;
- the network's 3D landmarks along the line of sight, weakly: they say which way a finger bends, not
  by how much;
- a hand at rest: angles are Gaussian about those of a relaxed hand, an end joint bends with the one
  before it (`prior`);
- limits of the joints, softly; and angles that wander over time like a random walk.

Where no keypoint is seen, the last two terms make the hand relax within a fraction of a second,
with deviations that grow to those of any hand. The solver is Gauss-Newton with closed-form
derivatives: an angle about an axis a at a joint P moves what hangs on it, q, by a x (q - P).
"""

from fitting.hands.fingers import fit_hands
from fitting.hands.palms import lay_palms_flat

__all__ = ["fit_hands", "lay_palms_flat"]
