"""From CMU's motion capture files to the arrays that training and benches read."""
