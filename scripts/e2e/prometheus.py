"""Reads the text that Prometheus scrapes from a metrics port."""

import re
import urllib.request
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"^(?P<name>\w+)\{(?P<labels>.*)\} (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass
class Scrape:
    """The samples whose names begin with a prefix.

    types    by family: counter, gauge or histogram
    samples  by name and labels; the labels are (name, value) pairs
    """

    types: dict[str, str] = field(default_factory=dict)
    samples: dict[str, dict[frozenset, float]] = field(default_factory=dict)

    def of(self, model: str) -> dict[str, float]:
        """The samples of a model with one instance, by name, or name{label="value"} for labels of the metric's own."""
        found = {}
        for name, series in self.samples.items():
            for labels, value in series.items():
                given = dict(labels)
                own = {key: given[key] for key in ("reason", "le") if key in given}
                if given.get("model") == model:
                    found[name + "".join(f'{{{key}="{text}"}}' for key, text in own.items())] = value
        return found


def scrape(metrics_url: str, prefix: str, path: str = "/metrics") -> Scrape:
    with _direct.open(f"http://{metrics_url}{path}", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    result = Scrape()
    for line in lines:
        if line.startswith(f"# TYPE {prefix}"):
            _, _, family, kind = line.split()
            assert family not in result.types, f"{family} is there twice"
            result.types[family] = kind
        elif line.startswith(prefix):
            sample = _SAMPLE.match(line)
            labels = frozenset(_LABEL.findall(sample["labels"]))
            series = result.samples.setdefault(sample["name"], {})
            assert labels not in series, f"{line} is there twice"
            series[labels] = float(sample["value"])
    return result


def family(sample: str) -> str:
    """The family of a sample: histograms have several of them."""
    return re.sub(r"_(bucket|sum|count)$", "", sample)
