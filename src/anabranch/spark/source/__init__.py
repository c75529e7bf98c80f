"""The data source `anabranch`: batch and streaming reads and writes, classic or through Spark Connect."""
