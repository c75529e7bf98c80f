"""BinaryRow, buckets and the folders of partitions."""
