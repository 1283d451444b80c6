"""Prometheus reads docs/prometheus.yml and the alerts, and these fire when they should and not otherwise."""

import subprocess

import pytest
import yaml

import screenshots
from drills import parts
from tritonserver import ROOT

RULES = ROOT / "docs" / "alerts.yml"
TESTS = ROOT / "scripts" / "e2e" / "alerts_test.yml"


def alerts() -> list[str]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return [rule["alert"] for rule in group["rules"]]


@pytest.mark.parametrize("arguments", [["check", "config", ROOT / "docs" / "prometheus.yml"], ["test", "rules", TESTS]])
def test_promtool(arguments):
    try:
        program = parts.prometheus("promtool")
    except parts.NotAvailable as why:
        pytest.skip(str(why))
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested():
    """With a model for which it fires, and one for which it does not."""
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    assert [test["alert_rule_test"][0]["alertname"] for test in tests] == alerts()
    for test in tests:
        series = [each["series"] for each in test["input_series"]]
        assert sum('model="quiet"' in each for each in series) == sum('model="asr"' in each for each in series) == len(series) / 2
        (case,) = test["alert_rule_test"]
        assert [alert["exp_labels"] for alert in case["exp_alerts"]] == [{"model": "asr"}]


def test_pictures_say_what_to_install(monkeypatch):
    """go run build.go monitoring --pictures, before it starts anything."""
    monkeypatch.setattr("shutil.which", {"prometheus": "/usr/bin/prometheus"}.get)
    with pytest.raises(parts.NotAvailable, match="pictures need chromium: apt-get install chromium$"):
        screenshots.check_programs()
