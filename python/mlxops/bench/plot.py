"""The projections as a picture: multiply-adds per second over m, under the roof of memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlxops.bench.measurement import Measurement


def save(measurements: Sequence[Measurement], path: Path) -> None:
    """Write a PNG with one panel for each shape."""
    from matplotlib.figure import Figure

    shapes = list(dict.fromkeys((each.shape["N"], each.shape["K"]) for each in measurements))
    figure = Figure(figsize=(3.6 * len(shapes) + 2, 4), layout="constrained")
    panels = figure.subplots(1, len(shapes), squeeze=False)[0]
    names = list(dict.fromkeys(each.name for each in measurements))
    for panel, (N, K) in zip(panels, shapes, strict=True):
        here = [each for each in measurements if (each.shape["N"], each.shape["K"]) == (N, K)]
        roof = [each for each in here if each.name == "mlxops" and each.memory == "cold"]
        panel.plot(
            [each.shape["m"] for each in roof],
            [each.gmac_per_s / each.share_of_read_bandwidth for each in roof],
            color="gray",
            linestyle=":",
            label="weights read once,\nat the read bandwidth",
        )
        for i, name in enumerate(names):
            for memory, style in (("cold", "o-"), ("hot", "s--")):
                chosen = [each for each in here if (each.name, each.memory) == (name, memory)]
                panel.plot(
                    [each.shape["m"] for each in chosen],
                    [each.gmac_per_s for each in chosen],
                    style,
                    color=f"C{i}",
                    markersize=4,
                    label=f"{name}, {memory}",
                )
        panel.set(title=f"N = {N}, K = {K}", xlabel="m", xscale="log", yscale="log")
        ticks = sorted({each.shape["m"] for each in here})
        panel.set_xticks(ticks, [str(m) for m in ticks])
        panel.set_xticks([], minor=True)
        panel.set_ylim(top=2 * max(each.gmac_per_s for each in here))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("GMAC/s")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(path, format="png", dpi=150)
