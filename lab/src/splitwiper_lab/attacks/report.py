"""Attack results as sentences and table rows; the command line prints them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from splitwiper.formats import NONE, percent, seconds
from splitwiper_lab.attacks.finding import AttackResult
from splitwiper_lab.attacks.suite import AS_SEEN, GUESS

HEADER = ("attack", "told", "rows recovered", "labels found", "in one group", "pairs F1", "number of labels", "time")
_TOLD = {"": "nothing", "Q": "how many labels", "aux": "a few rows"}


def table(results: Sequence[AttackResult]) -> list[tuple[str, ...]]:
    """Return the rows of a table, in the order of the results; `HEADER` has the titles."""
    rows = []
    for result in results:
        pairs = NONE if result.pair_f1 is None else f"{result.pair_f1:.2f}"
        shares = map(percent, (result.sample_recovery, result.perfect, result.inclusive))
        hint = _TOLD.get(result.knows, result.knows)
        rows.append((result.attack, hint, *shares, pairs, _labels(result), seconds(result.seconds)))
    return rows


def _labels(result: AttackResult) -> str:
    if result.labels_estimated is None:
        return NONE
    error = result.labels_error or 0
    return f"{result.labels_estimated}" + (f" ({error:+d})" if error else " (right)")


def verdict(results: Sequence[AttackResult]) -> str:
    """Summarise results in a paragraph: the strongest attack, the strongest without side information, and guessing."""
    real, untold, guess, counted = [], [], None, 0
    for result in results:
        if result.attack == GUESS:
            guess = result.sample_recovery
        elif result.attack != AS_SEEN and result.strength >= 0:
            real.append(result)
            if not result.knows:
                untold.append(result)
                counted += result.labels_estimated is not None and not result.labels_error
    if not real:
        return "No attack applies: the server holds no rows, or too little to group them."
    best = max(real, key=attrgetter("strength"))
    knowing = f", told {_TOLD.get(best.knows, best.knows)}" if best.knows else ""
    parts = [f"The strongest attack ({best.attack}{knowing}) {_worth(best)}."]
    if best.knows and untold:
        alone = max(untold, key=attrgetter("strength"))
        parts.append(f"Without a hint, the server does best with {alone.attack}, which {_worth(alone)}.")
    if guess is not None:
        parts.append(f"Knowing nothing gives {percent(guess)}.")
    if counted:
        parts.append(f"{counted} of the attacks without a hint get the number of labels right.")
    parts += _others(results)
    if len(real) > 1:
        parts.append(f"The strongest of {len(real)} was chosen by the true labels, which a real server does not have.")
    return " ".join(parts)


def _worth(result: AttackResult) -> str:
    """Say what a result means, as the end of a sentence."""
    if result.sample_recovery is None:
        return f"finds the codes of {percent(result.perfect)} of the labels"
    meaning = f"recovers the true label of {percent(result.sample_recovery)} of the rows, up to names"
    if result.perfect is not None:
        meaning += f", and exactly the codes of {percent(result.perfect)} of the labels"
    return meaning


def _others(results: Sequence[AttackResult]) -> list[str]:
    """Return sentences about forgotten rows and reconstructed inputs."""
    sentences = []
    gone = [result.scores for result in results if "codes_recall" in result.scores]
    if gone:
        scores = max(gone, key=lambda scores: (scores.get("rows_recall", 0.0), scores["codes_recall"]))
        sentence = f"Of what was forgotten, it finds {percent(scores['codes_recall'])} of the codes"
        if "rows_recall" in scores:
            precision = percent(scores["rows_precision"])
            sentence += f" and {percent(scores['rows_recall'])} of the rows (precision {precision})"
        sentences.append(f"{sentence}, if it kept the erased uploads.")
    rebuilt = [result for result in results if "psnr" in result.scores]
    if rebuilt:
        best = max(rebuilt, key=lambda result: result.scores["psnr"])
        sentences.append(
            f"Inputs are rebuilt at {best.scores['psnr']:.1f}\xa0dB ({best.attack.split(', ')[-1]}); their mean alone "
            f"gives {best.scores['psnr_of_mean']:.1f}\xa0dB."
        )
    return sentences
