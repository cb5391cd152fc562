"""From names to algorithms: presets, schedules, and what a new algorithm needs."""

import pytest

import s2pg
from s2pg.algorithms import ALGORITHMS, PPO
from s2pg.errors import UserError
from s2pg.runs import experiment
from s2pg.runs.experiment import read_config, resolve

TINY = {"lanes": 2, "steps": 8, "size": 4, "width": 4, "epochs": 1, "minibatches": 1}


def test_a_new_algorithm_needs_its_class_and_one_line(monkeypatch):
    class Mine(PPO):
        pass

    monkeypatch.setitem(ALGORITHMS, "mine", Mine)
    _, built = resolve("mine", s2pg.make("recall"), memory="bptt-8")
    assert isinstance(built, Mine) and built.lanes > 0 and built.steps > 0


def test_segments_longer_than_a_rollout_keep_the_number_of_transitions():
    _, short = resolve("ppo", s2pg.make("recall", k=32), memory="bptt-8")
    _, long = resolve("ppo", s2pg.make("recall", k=32), memory="bptt-64")
    assert long.steps == 64 and long.lanes * long.steps == short.lanes * short.steps


def test_an_annealed_rate_reaches_zero_with_the_run_whatever_its_length():
    env = s2pg.make("pointmass-goal")
    for steps in (1_000_000, 50_000_000):
        _, built = resolve("ppo", env, memory="s2pg-pathwise", steps=steps)
        assert 0 <= built.anneal_updates * built.lanes * built.steps - steps < built.lanes * built.steps


def test_a_resumed_run_keeps_its_schedule_and_says_where_it_ends(tmp_path):
    env, said = s2pg.make("pointmass-goal", horizon=8), []
    for steps in (64, 128):
        s2pg.train("ppo", env, hyper=TINY, steps=steps, episodes=1, out=tmp_path, resume=True, say=said.append)
    assert read_config(tmp_path)[0].hyper["anneal_updates"] == 4
    assert said == ["the learning rate reaches 0 after 64 steps; what follows learns nothing"]


def test_fewer_steps_on_resume_change_nothing(tmp_path):
    env = s2pg.make("recall", k=2)
    s2pg.train("ppo", env, hyper=TINY, steps=64, episodes=1, out=tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    s2pg.train("ppo", env, hyper=TINY, steps=16, episodes=1, out=tmp_path, resume=True, say=lambda line: None)
    assert (tmp_path / "config.json").read_bytes() == before


@pytest.mark.parametrize("given", [{"steps": 0}, {"seeds": (True,)}, {"seeds": (-1,)}, {"seeds": ()}])
def test_seeds_and_steps_out_of_range_are_refused(given):
    with pytest.raises(UserError):
        resolve("ppo", s2pg.make("recall"), **given)


def test_pathwise_without_privilege_warns(tmp_path):
    said = []
    experiment.train(
        "ppo", "recall", memory="s2pg-pathwise", critic="policy", hyper=TINY, steps=16, episodes=1,
        out=tmp_path / "run", say=said.append,
    )  # fmt: skip
    assert len(said) == 1 and "critic" in said[0]


def test_robots_have_presets_of_their_own_on_each_backend():
    host, device = (s2pg.make("halfcheetah", backend=backend) for backend in ("gymnasium", "mjx"))
    for env, lanes, steps in ((host, 8, 1_000_000), (device, 1024, 10_000_000)):
        found, built = resolve("ppo", env)
        assert (built.lanes, found.steps, found.hyper["size"]) == (lanes, steps, 32)
        assert resolve("ppo", env, memory="bptt-32")[0].hyper["size"] == 128  # what is said of s2pg alone
    assert [resolve("sac", env)[1].gradient_steps for env in (host, device)] == [1, 8]


def test_a_memory_of_td3_is_kept_awake_and_blind_ants_are_quiet_on_each_backend():
    for backend, lanes in (("gymnasium", 16), ("mjx", 1024)):
        ant = s2pg.make("ant", backend=backend)
        quiet, louder = (resolve("ppo", ant, kernel=kernel)[1] for kernel in ("cpg", "gru"))
        assert quiet.action_log_std < louder.action_log_std and quiet.lanes == lanes
        assert all(resolve(name, ant)[1].saturation_cost > 0 for name in ("td3", "ddpg"))


def test_a_run_has_about_as_many_borders_as_asked_for():
    chunks = [resolve("ppo", s2pg.make("recall"), steps=409_600, borders=borders)[0].chunk for borders in (10, 50)]
    assert chunks == [10, 2]
    with pytest.raises(UserError, match="borders must be 1 or more"):
        resolve("ppo", s2pg.make("recall"), borders=0)
