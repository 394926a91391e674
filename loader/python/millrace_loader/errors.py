"""What a loader can do to its client."""


class LoaderError(Exception):
    """The loader refused a request, or no data arrived in time."""


class DatasetChanged(LoaderError):
    """The loader serves another dataset now. All requests are cancelled; `Feed.dataset` describes the new one."""
