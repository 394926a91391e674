"""Client of millrace's loader: exact, resumable batches of tokens for PyTorch and numpy."""
from .dataset import TokenBatches
from .errors import DatasetChanged, LoaderError
from .feed import Feed

__all__ = ["TokenBatches", "Feed", "LoaderError", "DatasetChanged"]
