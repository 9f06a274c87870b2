"""The loss curve as a picture."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from train.callbacks import read_log

CURVE_FILE = "loss.png"


def draw_curve(log: Path, out: Path, title: str) -> None:
    """Training and evaluation loss over the optimizer steps of a log, as a PNG."""
    lines = read_log(log)
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, shown, style in (
        ("loss", "training", {"color": "#2b6cb0", "linewidth": 1.5}),
        ("eval_loss", "rows kept out", {"color": "#c05621", "marker": "o", "linestyle": "--"}),
    ):
        points = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), label=shown, **style)
    axes.set(xlabel="optimizer step", ylabel="loss per answer token", title=title, ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(out)
