"""Which targets of rows a loss of answers counts, as the trainer's loss_tokens=answers."""
import numpy as np
import numpy.typing as npt


def answer_targets(rows: npt.ArrayLike, end_of_text: int, system: int, user: int, assistant: int, end: int) -> npt.NDArray[np.bool_]:
    """(B, T) of rows of ids (B, T+1): whether the target rows[:, t + 1] counts. The ids of the markers follow those of the vocabulary
    without them: GPT-2's are 50256 for the end of a text, and 50257 to 50260."""
    array = np.asarray(rows)
    ids, targets = array[:, :-1], array[:, 1:]
    on = (ids == assistant) | ((ids == end_of_text) & ~np.isin(targets, (end_of_text, system, user, assistant)))
    marks = np.isin(ids, (end_of_text, system, user, assistant, end))
    last = np.maximum.accumulate(np.where(marks, np.arange(ids.shape[1]), -1), axis=1)  # the newest marker
    counts: npt.NDArray[np.bool_] = (last >= 0) & np.take_along_axis(on, np.maximum(last, 0), axis=1)
    return counts
