"""Client of millrace's loader: exact, resumable batches of tokens for PyTorch and numpy."""
try:
    from .answers import answer_targets
    from .dataset import TokenBatches
    from .errors import DatasetChanged, LoaderError
    from .feed import Feed
except ModuleNotFoundError as error:
    if error.name not in ("numpy", "zmq"):
        raise
    raise ModuleNotFoundError(f"millrace_loader needs {error.name}, which is not installed: pip install numpy pyzmq",
                              name=error.name) from None

__all__ = ["TokenBatches", "Feed", "answer_targets", "LoaderError", "DatasetChanged"]
