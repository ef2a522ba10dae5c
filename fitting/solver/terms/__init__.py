"""What pulls on a body: each term has its cost and its derivatives side by side (`term`)."""
