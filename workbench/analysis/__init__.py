"""What the numbers mean: DataFrame in, DataFrame out."""
