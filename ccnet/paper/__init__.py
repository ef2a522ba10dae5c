"""What only the tables of the paper need: other features, ensembles."""
