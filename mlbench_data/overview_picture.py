"""The statistics of a benchmark as one picture."""

from pathlib import Path
from typing import Any

from mlbench_data.files import replacing

COLOURS = {"readme": "#4c72b0", "bm25": "#dd8452", "oracle": "#55a868"}


def draw(found: dict[str, Any], path: Path) -> None:
    """Writes a PNG of four panels: lengths, rows by domain, edit distances, BLEU-1."""
    import matplotlib  # slow to import, and only a picture needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 2, figsize=(13, 9), layout="constrained")
    _lengths(panels[0][0], found["table8"])
    _domains(panels[0][1], found["table9"])
    _distances(panels[1][0], found["table9"])
    _bleu(panels[1][1], found["table11"])
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    pyplot.close(figure)


def _lengths(panel: Any, table8: dict[str, dict[str, float]]) -> None:
    """Average tokens of README, window and segment, by repository, in the first vocabulary."""
    vocabulary = next(iter(next(iter(table8.values())))).rsplit(".", 2)[0]
    names = sorted(table8)
    for place, setting in enumerate(COLOURS):
        values = [_mean(table8[name], f"{vocabulary}.{setting}.") for name in names]
        rows = [number + 0.27 * (place - 1) for number in range(len(names))]
        panel.barh(rows, values, 0.26, label=setting, color=COLOURS[setting])
    panel.set_yticks(range(len(names)), names, fontsize=8)
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.set_xlabel(f"tokens ({vocabulary})")
    panel.set_xlim(left=10)
    panel.set_title("What a row reads, by repository (Table 8)")
    _legend(panel)


def _mean(columns: dict[str, float], start: str) -> float:
    values = [value for column, value in columns.items() if column.startswith(start)]
    return sum(values) / len(values) if values else 0.0


def _domains(panel: Any, table9: dict[str, Any]) -> None:
    """Rows by domain and split."""
    domains = sorted({domain for item in table9.values() for domain in item["domains"]})
    height = 0.8 / len(table9)
    for place, (split, item) in enumerate(table9.items()):
        values = [
            sum(sum(kinds.values()) for kinds in item["domains"].get(name, {}).values()) for name in domains
        ]
        rows = [number + height * (place - (len(table9) - 1) / 2) for number in range(len(domains))]
        bars = panel.barh(rows, values, height * 0.95, label=split)
        panel.bar_label(bars, fontsize=7, padding=2)
    panel.set_yticks(range(len(domains)), domains, fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel("rows")
    panel.margins(x=0.12)
    panel.set_title("Rows by domain (Table 9)")
    _legend(panel)


def _distances(panel: Any, table9: dict[str, Any]) -> None:
    """Edit distances of instructions within and across tasks."""
    for place, where in enumerate(("within", "across")):
        values = [item[f"edit_distance_{where}_tasks"]["average"] or float("nan") for item in table9.values()]
        bars = panel.bar(
            [number + 0.4 * (place - 0.5) for number in range(len(table9))], values, 0.38, label=where
        )
        panel.bar_label(bars, fmt="%.0f", fontsize=8)
    panel.set_xticks(range(len(table9)), list(table9))
    panel.set_ylabel("characters")
    panel.margins(y=0.12)
    panel.set_title("Edit distance of instructions, within and across tasks (Table 9)")
    _legend(panel)


def _bleu(panel: Any, table11: dict[str, float | None]) -> None:
    """BLEU-1 between window and segment."""
    known = {split: score for split, score in table11.items() if score is not None}
    panel.set_title("BLEU-1 of BM25 window against oracle segment (Table 11)")
    if not known:
        panel.text(0.5, 0.5, "no READMEs", ha="center", transform=panel.transAxes)
        return
    bars = panel.bar(list(known), list(known.values()), 0.5, color=COLOURS["bm25"])
    panel.bar_label(bars, fmt="%.3f", fontsize=8)
    panel.margins(y=0.12)


def _legend(panel: Any) -> None:
    """Below the axis, where it hides nothing."""
    panel.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.11), ncols=3, frameon=False)
