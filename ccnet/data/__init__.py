"""Annotated people (COCO, COCO-WholeBody, MPII) and the training examples made from them."""
