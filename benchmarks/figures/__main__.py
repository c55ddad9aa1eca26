"""Draw the figures of the papers, measure their bounds, and write docs/figures.rst.

make figures                               all of it, at most 20 minutes on two cores
cd benchmarks; python -m figures           the same, in an environment that has everything
python -m figures fixed_point --quick      one paper at a small size; docs stay as they are
"""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path

import matplotlib as mpl

from figures import _page

PAPERS = (
    "fixed_point",
    "gradient_admm",
    "multi_step",
    "local_randomization",
    "personalized",
    "theorems",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("papers", nargs="*", metavar="paper", help=", ".join(PAPERS))
    parser.add_argument("--jobs", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--quick", action="store_true", help="small runs, into benchmarks/output")
    options = parser.parse_args()
    papers = [name for name in PAPERS if not options.papers or name in options.papers]
    if unknown := set(options.papers) - set(PAPERS):
        parser.error(f"Got {', '.join(sorted(unknown))}, expected some of {', '.join(PAPERS)}.")
    mpl.use("Agg")
    mpl.rcParams.update({"font.size": 8, "legend.frameon": False, "legend.fontsize": 7})
    page = Path(__file__).parents[1] / "output" / "figures.rst"
    if not options.quick:
        page, _page.PICTURES = _page.DOCS / "figures.rst", _page.DOCS / "images"
    for name in papers:
        started = time.perf_counter()
        module = importlib.import_module(f"figures.{name}")
        found = module.comparisons(options.jobs, options.quick)
        _page.write(page, {name: _page.section(name, module, found)}, PAPERS)
        print(f"\n{module.TITLE}\n\n{_page.printed(found)}\n")
        print(f"{name}: {time.perf_counter() - started:.0f} s, wrote {page}\n", flush=True)


if __name__ == "__main__":
    main()
