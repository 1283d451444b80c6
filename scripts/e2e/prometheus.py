"""Reads the text that Prometheus scrapes from a metrics port."""

import re
import urllib.request
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

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
        families = text_string_to_metric_families(answer.read().decode())
    result = Scrape()
    for metric in families:
        if not metric.name.startswith(prefix):
            continue
        name = metric.name + "_total" * (metric.type == "counter")
        assert name not in result.types, f"{name} is there twice"
        result.types[name] = metric.type
        for sample in metric.samples:
            series, labels = result.samples.setdefault(sample.name, {}), frozenset(sample.labels.items())
            assert labels not in series, f"{sample} is there twice"
            series[labels] = sample.value
    return result


def family(sample: str) -> str:
    """The family of a sample: histograms have several of them."""
    return re.sub(r"_(bucket|sum|count)$", "", sample)
