"""How the figures come into docs/reliability.md."""

import re

from promises import PAGE as RELIABILITY
from promises import Figures, filled, fuzz_targets

PAGE = """# Page

| Promise | Proved by | Last run |
|---|---|---|
| It holds. | `backend.TestA`, `scripts/e2e/test_b.py::test_c` | of old |
| It is fast. | `statebuffer.BenchmarkD`, `backend.FuzzE` |  |
| It lasts. | `go run build.go soak` | see above |

| Other | table |
|---|---|
| `backend.TestA` | stays |
"""


def test_each_row_gets_the_sum_of_its_tests():
    figures = {
        "backend.TestA": Figures(cases=2, seconds=1.25),
        "test_b::test_c": Figures(cases=1, seconds=0.5),
        "statebuffer.BenchmarkD": Figures(words="D few 5 ns, many 6 ns"),
        "backend.FuzzE": Figures(words="E 10,000 inputs"),
    }
    page = filled(PAGE, figures)
    assert page.splitlines()[4] == "| It holds. | `backend.TestA`, `scripts/e2e/test_b.py::test_c` | 3 cases, 1.8 s |"
    assert page.splitlines()[5].endswith("| D few 5 ns, many 6 ns; E 10,000 inputs |")
    assert page.splitlines()[6:] == PAGE.splitlines()[6:]
    assert filled(page, figures) == page


def test_every_fuzz_target_of_the_page_is_found():
    named = set(re.findall(r"`([a-z]+\.Fuzz\w+)`", RELIABILITY.read_text()))
    assert named == set(fuzz_targets())
    assert min(inputs for _, _, inputs in fuzz_targets().values()) >= 10_000
