"""Networks that turn a crop into feature maps, named as in their published checkpoints."""
