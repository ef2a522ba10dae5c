"""What only the paper's tables need: its analysis, other features, ensembles, costs, figures."""
