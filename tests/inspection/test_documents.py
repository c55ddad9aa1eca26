"""Names of columns, classes, categories and agents write no line and no link of their own."""

import re

import numpy as np
import pandas as pd
import pytest

from skdpadmm import DPAdmmLogisticRegression, DPFedRidge
from skdpadmm._document import Block, as_html, as_markdown, as_text
from skdpadmm.inference import summary
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.preprocessing import private_bounds

ODD = (
    "\n",
    "\r",
    "\r\n\r\n",
    "\x0b",
    "\x0c",
    "\x1b[1A",
    "\x85",
    "\u2028",
    "\u2029",
    "\u202e",
    "\t",
    "   ",
)
FORGED = [f"a{odd}## Privacy{odd}epsilon=0.01" for odd in ODD]
WRITERS = (as_text, as_markdown, as_html)


def blocks_of(name):
    """Blocks of each kind with a name everywhere."""
    yield Block("title", [name])
    yield Block("text", [name])
    yield Block("warning", [name])
    yield Block("table", [name, name], [(name, name)])
    yield Block("list", [name], [name], fold="more")
    yield Block("pairs", [], [(name, name)])


def has_no_forged_line(text):
    return not re.search(r"^\W*(##|epsilon=)", text.replace("## Privacy\n\nOf", ""), re.MULTILINE)


@pytest.mark.parametrize("name", FORGED, ids=ascii)
def test_no_name_begins_a_line(name):
    plain = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in name))
    for write in WRITERS:
        text = write(blocks_of(name))
        assert text == write(blocks_of(plain))
        assert all(c.isprintable() or c == "\n" for c in text)
    assert len(as_text(blocks_of(name)).splitlines()) == len(as_text(blocks_of("a")).splitlines())


def test_no_name_is_markup():
    name = "a [link](http://b) ![image](c) | *d* `e` <f> \\"
    text = as_markdown(blocks_of(name))
    assert r"a \[link\](http://b) !\[image\](c) \| \*d\* \`e\` &lt;f&gt; \\" in text
    assert not re.search(r"(?<!\\)[\[\]*`<>]", text.replace("| --- | --- |", ""))


def test_names_of_columns_classes_and_agents_forge_no_line(tmp_path):
    rng, forged = np.random.default_rng(0), FORGED[2]
    X = pd.DataFrame(rng.uniform(-1, 1, (60, 2)), columns=[forged, "b"])
    y = np.where(X["b"] > 0, forged, "no")
    path = str(tmp_path / "study.db")
    known = {"feature_bounds": (-1, 1), "max_iter": 2, "delta": 1e-3, "ledger": path}
    model = DPAdmmLogisticRegression(classes=["no", forged], intervals=True, **known).fit(X, y)
    owners = np.where(np.arange(60) % 2, forged, "c")
    agents = DPFedRidge(target_bounds=(-1, 1), epsilon={forged: 1.0, "c": 2.0}, **known)
    agents.fit(X, X["b"], agents=owners)
    words = pd.DataFrame({forged: [forged, "d"] * 30})
    bounds = private_bounds(words, epsilon=5.0, delta=1e-2, categories=[forged])
    for page in (summary(model), model.privacy_, agents.privacy_, bounds, PrivacyLedger(path)):
        for text in (repr(page), getattr(page, "to_markdown", str)(), page._repr_html_()):
            assert has_no_forged_line(text), text
            assert "\r" not in text
