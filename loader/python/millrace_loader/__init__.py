"""Client of millrace's loader: exact, resumable batches of tokens for PyTorch and numpy."""
from .dataset import TokenBatches
from .feed import DatasetChanged, Feed, LoaderError

__all__ = ["TokenBatches", "Feed", "LoaderError", "DatasetChanged"]
