"""What a job's state consists of: tensors, flat vectors, and who holds which of their elements.

Pure, and free of torch. The values themselves belong to whoever holds them.
"""
