"""The experiment "bars-reliability"."""

from small_experiments import check_report

from evoem.reproduction.recipes import load


def test_all_combinations_are_run_and_reported(ran):
    check_report(ran("bars-reliability"), "bars-reliability")


def test_reliability_has_every_combination_of_every_model(ran):
    folder, done, table = ran("bars-reliability")
    assert len(table) == 3
    text = (folder / "table-2.csv").read_text()
    assert text.count("of 2") == 18
    best = max(done[0].outcome.values["bounds"], key=done[0].outcome.values["bounds"].get)
    assert best in load("bars-reliability", "full").rows[0].settings["operators"]
