"""From names to algorithms: labels, hyper-parameters, the law of presets, schedules, and algorithms of one's own."""

import dataclasses
from pathlib import Path

import equinox as eqx
import pytest

import s2pg
from s2pg.algorithms import ALGORITHMS, PPO, Algorithm, register_algorithm
from s2pg.config import hyper, labels, presets
from s2pg.config.presets import PRESETS, Preset, Situation, register_presets
from s2pg.config.presets.base import SWITCHES, merged
from s2pg.config.rules import memory_rule
from s2pg.critics import BranchedCritic, PlainCritic, RecurrentCritic
from s2pg.errors import UserError
from s2pg.kernels import KERNELS
from s2pg.kernels.gru import GRUKernel
from s2pg.memory import CarryRule, DrawRule, PathwiseRule, UnrollRule
from s2pg.options import option
from s2pg.runs import training
from s2pg.runs.experiment import read_config
from s2pg.runs.request import Request
from toys import CONTINUOUS, DISCRETE, resolve

TINY = {"lanes": 2, "steps": 8, "size": 4, "width": 4, "epochs": 1, "minibatches": 1}


# Labels --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pattern", "rule"),
    [
        ("s2pg", "s2pg", DrawRule(-1.0)),
        ("s2pg-pathwise", "s2pg-pathwise", PathwiseRule(-1.0)),
        ("s2pg-8", "s2pg-N", PathwiseRule(-1.0, length=8)),
        ("bptt-8", "bptt-N", UnrollRule(8)),
        ("bptt-3-last", "bptt-N-last", UnrollRule(3, last=True)),
        ("window-5", "window-K", CarryRule(4)),
        ("none", "none", CarryRule(0)),
        ("oracle", "oracle", CarryRule(0)),
    ],
)
def test_a_label_is_read_with_its_length_and_makes_its_rule(text, pattern, rule):
    choice = labels.parse(text)
    assert (choice.name, choice.label) == (text, labels.LABELS[pattern])
    assert memory_rule(choice, {"state_log_std": -1.0}) == rule


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bptt", "did you mean"),
        ("bptt-x", "unknown memory"),
        ("bptt-0", "memory 'bptt-0': a segment has 1 step or more"),
        ("window--2", "memory 'window--2': a window has 1 step or more"),
        ("sp2g", "did you mean s2pg"),
        ("s2pg-0", "memory 's2pg-0': a segment has 1 step or more"),
    ],
)
def test_a_label_that_means_nothing_is_refused(text, told):
    with pytest.raises(UserError, match=told):
        labels.parse(text)


@pytest.mark.parametrize(
    ("algorithm", "label", "critic", "hyper", "kind", "reads", "options"),
    [
        ("ppo", "s2pg", "policy", {}, PlainCritic, ("policy", "previous_action"), {"reads_state": True}),
        (
            "ppo",
            "bptt-3",
            "policy",
            {},
            RecurrentCritic,
            ("policy", "previous_action"),
            {"layers": 1, "reads_state": True},
        ),
        ("ppo", "bptt-3", "policy", {"critic_state": False}, RecurrentCritic, None, {"reads_state": False}),
        ("ppo", "bptt-3", "policy", {"critic_memory": False}, PlainCritic, None, {"reads_state": True}),
        ("ppo", "bptt-1", "policy", {}, PlainCritic, None, {"reads_state": True}),
        ("ppo", "s2pg-3", "policy", {}, RecurrentCritic, None, {"reads_state": True}),
        ("ppo", "s2pg-3", "policy", {"critic_memory": False}, PlainCritic, None, {"reads_state": True}),
        ("ppo", "s2pg-3", "critic", {}, PlainCritic, None, {"reads_state": True}),
        ("sac", "s2pg-3", "policy", {}, PlainCritic, None, {"reads_state": True}),
        ("sac", "s2pg-3", "policy", {"q_network": "branched"}, BranchedCritic, None, {}),
        ("ppo", "s2pg-1", "policy", {}, PlainCritic, None, {"reads_state": True}),
        ("ppo", "s2pg-pathwise", "policy", {}, PlainCritic, None, {"reads_state": True}),
        ("sac", "bptt-3", "policy", {}, RecurrentCritic, ("policy", "previous_action"), {"layers": 2}),
        ("ppo", "bptt-3", "critic", {}, PlainCritic, ("critic", "previous_action"), {"reads_state": True}),
        ("ppo", "bptt-3", "critic", {"critic_state": False}, PlainCritic, None, {"reads_state": False}),
        ("ppo", "window-3", "policy", {}, PlainCritic, ("policy",), {"reads_state": True}),
        ("ppo", "window-3", "critic", {}, PlainCritic, ("critic",), {"reads_state": True}),
        ("ppo", "none", "policy", {}, PlainCritic, ("policy",), {"reads_state": False}),
        ("ppo", "oracle", "policy", {}, PlainCritic, ("critic",), {"reads_state": False}),
        ("sac", "s2pg", "critic", {"q_network": "branched"}, BranchedCritic, ("critic", "previous_action"), {}),
        ("sac", "bptt-3", "critic", {"q_network": "branched"}, PlainCritic, None, {}),
    ],
)
def test_a_label_chooses_what_its_critic_is_and_reads(algorithm, label, critic, hyper, kind, reads, options):
    env = s2pg.make("masked-pendulum")  # which shows the previous action
    recipe = resolve(algorithm, env, memory=label, critic=critic, hyper=hyper)[1].critic
    assert recipe.kind is kind and (reads is None or recipe.reads == reads)
    assert dict(recipe.options).items() >= options.items()


@pytest.mark.parametrize(
    ("algorithm", "env", "asked", "told"),
    [
        ("ppo", DISCRETE, {"memory": "window-9"}, "memory 'window-9': a window is longer than an episode"),
        ("sac", CONTINUOUS, {"memory": "bptt-9"}, "memory 'bptt-9': a segment is longer than an episode"),
        ("reinforce", DISCRETE, {"memory": "s2pg-pathwise"}, "reinforce has no critic to carry the gradient"),
        ("sac", DISCRETE, {}, "sac needs continuous actions"),
        ("sac", CONTINUOUS, {"memory": "s2pg-pathwise"}, "is for ppo and trpo"),
        ("ppo", DISCRETE, {"kernel": "mlp"}, "kernel 'mlp' has no state to learn"),
        ("ppo", DISCRETE, {"memory": "none", "kernel": "gru"}, "memory 'none' goes with kernel 'mlp', not 'gru'"),
        ("ppo", DISCRETE, {"critic": "actor"}, "unknown critic 'actor'"),
        ("pppo", DISCRETE, {}, "unknown algorithm 'pppo'; did you mean ppo"),
        ("ppo", DISCRETE, {"kernel": "gruu"}, "did you mean gru"),
    ],
)
def test_points_that_do_not_go_together_are_refused_in_one_line(algorithm, env, asked, told):
    with pytest.raises(UserError, match=told) as caught:
        resolve(algorithm, env, **asked)
    assert "\n" not in str(caught.value)


# Hyper-parameters ----------------------------------------------------------------------------------------------------


def test_a_kernel_that_cannot_be_unrolled_is_refused_by_bptt_alone(monkeypatch):
    class Forward(GRUKernel):
        unrolls = False

    monkeypatch.setitem(KERNELS, "forward", Forward)
    assert resolve("ppo", DISCRETE, memory="s2pg", kernel="forward", hyper=TINY)[1].kernel.func is Forward
    with pytest.raises(UserError, match="'forward' cannot be unrolled, which memory 'bptt-3' needs; use s2pg"):
        resolve("ppo", DISCRETE, memory="bptt-3", kernel="forward", hyper=TINY)


def test_hyper_parameters_are_those_of_algorithm_memory_networks_and_kernel():
    known = hyper.defaults("ppo", "gru")
    assert known["lanes"] is None and known["clip"] == 0.2 and known["state_log_std"] == -1.5 and known["size"] == 64
    assert "burn_in" not in known and "q_network" not in known  # there is no replay buffer
    assert {"burn_in", "q_network", "capacity"} < hyper.defaults("sac", "gru").keys()
    assert not {"length", "dt"} & known.keys()  # what the label and the task say
    assert hyper.defaults("ppo", "ode").keys() > known.keys()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"clipp": 0.1}, "did you mean clip"),
        ({"clip": 0}, "hyper-parameter 'clip' must be above 0, not 0"),
        ({"lanes": "2.5"}, "hyper-parameter 'lanes' must be int"),
        ({"discount": "often"}, "hyper-parameter 'discount' must be float"),
        ({"baseline": True}, "unknown hyper-parameter of ppo"),
    ],
)
def test_hyper_parameters_are_checked_by_name_type_and_bounds(given, told):
    with pytest.raises(UserError, match=told):
        hyper.parse("ppo", "gru", given)


def test_hyper_parameters_may_come_as_text():
    given = {"lanes": "3", "discount": "1", "normalise_obs": "false"}
    assert hyper.parse("ppo", "gru", given) == {"lanes": 3, "discount": 1.0, "normalise_obs": False}


# Presets: all that match count, the more specific one wins -----------------------------------------------------------


def chosen(*presets, **situation):
    usual = {"task": "ant", "backend": "mjx", "label": "s2pg", "kernel": "gru"}
    found = merged(presets, Situation(**usual | situation))
    return {name: value for name, value in found.items() if name not in SWITCHES}


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ({}, {"backend": "device"}),
        ({"backend": "device"}, {"backend": "mjx"}),
        ({"backend": "mjx"}, {"task": "robot"}),
        ({"task": "robot"}, {"task": "ant"}),
        ({"task": "robot", "backend": "mjx"}, {"task": "ant"}),
        ({"task": "ant", "backend": "mjx"}, {"label": "s2pg"}),
        ({"label": "s2pg"}, {"kernel": "gru"}),
        ({"label": "s2pg", "task": "ant", "backend": "mjx"}, {"kernel": "gru"}),
        ({"kernel": "gru"}, {"kernel": "gru", "task": "robot"}),
    ],
)
def test_the_more_specific_preset_wins_in_whatever_order_they_stand(weaker, stronger):
    low, high = Preset(weaker, {"lanes": 1, "size": 1}), Preset(stronger, {"lanes": 2})
    assert chosen(low, high) == chosen(high, low) == {"lanes": 2, "size": 1}


def test_between_equals_the_later_preset_wins():
    one, other = (Preset({"task": "ant"}, {"lanes": lanes}) for lanes in (1, 2))
    assert (chosen(one, other), chosen(other, one)) == ({"lanes": 2}, {"lanes": 1})


@pytest.mark.parametrize("match", [{"task": "hopper"}, {"task": "gym:"}, {"backend": "gymnasium"}, {"label": "bptt-N"},
                                   {"kernel": "cpg"}, {"task": "ant", "kernel": "cpg"}])  # fmt: skip
def test_a_preset_for_something_else_says_nothing(match):
    assert chosen(Preset(match, {"lanes": 1})) == {}


def test_the_tasks_of_another_library_are_a_family():
    gym = Preset({"task": "gym:"}, {"lanes": 1})
    assert chosen(gym, task="gym:Pendulum-v1") == {"lanes": 1} and chosen(gym, task="recall") == {}


def test_switches_have_defaults_and_are_no_hyper_parameters():
    assert merged([], Situation("recall")) == SWITCHES
    found = presets.values("ppo", Situation("pointmass-goal", None, "s2pg", "gru"))
    assert (found.critic, found.steps, found.anneal) == ("critic", 115_000_000, True)
    assert not SWITCHES.keys() & found.hyper.keys()


def test_values_of_lsiq_can_sink_on_robots_and_are_as_published_elsewhere():
    robot, other = (presets.values("lsiq", Situation(task, "warp", "s2pg", "gru")) for task in ("ant", "recall"))
    hyper = robot.hyper
    # Gradient steps until a value that is too high has sunk by a factor of e: 1 / (target_rate (1 - discount)).
    assert 1 / (hyper["target_rate"] * (1 - hyper["discount"])) < 2_000
    assert (hyper["critics"], hyper["normalise_obs"], other.hyper["critics"]) == (2, True, 1)
    assert hyper["gradient_steps"] * robot.steps / hyper["lanes"] == 100_000
    assert "discount" not in other.hyper


def test_every_preset_names_hyper_parameters_that_there_are():
    for algorithm in PRESETS:
        known = SWITCHES.keys() | hyper.defaults(algorithm, "gru").keys()
        for preset in presets.of_algorithm(algorithm):
            assert preset.values.keys() <= known, (algorithm, preset)
            assert preset.match.get("label", "s2pg") in labels.LABELS


def test_what_the_user_gives_wins_over_presets():
    assert resolve("ppo", s2pg.make("recall"), hyper={"size": "7"})[0].hyper["size"] == 7
    assert resolve("ppo", s2pg.make("recall"))[0].hyper["size"] == 32


def test_presets_of_ones_own_are_added(monkeypatch):
    monkeypatch.setitem(PRESETS, "ppo", PRESETS["ppo"])
    register_presets("ppo", Preset({"task": "recall"}, {"size": 9, "total_steps": 77}))
    found, _ = resolve("ppo", s2pg.make("recall"))
    assert (found.hyper["size"], found.hyper["width"], found.steps) == (9, 32, 77)


@pytest.mark.parametrize(
    ("algorithm", "preset", "told"),
    [
        ("pppo", Preset({}, {}), "unknown algorithm 'pppo'; did you mean ppo"),
        ("ppo", Preset({"memory": "s2pg"}, {}), "unknown axis of a preset 'memory'"),
        ("ppo", Preset({"label": "bptt-8"}, {}), "unknown label of a preset 'bptt-8'; did you mean bptt-N"),
    ],
)
def test_presets_that_could_never_hold_are_refused(algorithm, preset, told):
    with pytest.raises(UserError, match=told):
        register_presets(algorithm, preset)


def test_a_preset_of_a_hyper_parameter_that_there_is_not_is_refused(monkeypatch):
    monkeypatch.setitem(PRESETS, "ppo", (*PRESETS["ppo"], Preset({}, {"lerning_rate": 1.0})))
    with pytest.raises(UserError, match="in a preset of ppo 'lerning_rate'; did you mean learning_rate"):
        resolve("ppo", DISCRETE)


def test_robots_have_presets_of_their_own_on_each_backend():
    host, device = (s2pg.make("halfcheetah", backend=backend) for backend in ("gymnasium", "mjx"))
    for env, lanes, steps in ((host, 8, 1_000_000), (device, 1024, 10_000_000)):
        found, built = resolve("ppo", env)
        assert (built.lanes, found.steps, found.hyper["size"]) == (lanes, steps, 32)
        assert resolve("ppo", env, memory="bptt-32")[0].hyper["size"] == 128  # what is said of s2pg alone
    assert [resolve("sac", env)[1].gradient_steps for env in (host, device)] == [1, 8]
    # Between N steps and a slope that misleads, memories of robots learn from the steps; one step has the slope alone.
    weight = lambda name, env, label: resolve(name, env, memory=label)[0].hyper["pathwise_weight"]  # noqa: E731
    for name in ("ppo", "trpo", "gail"):
        assert [weight(name, host, label) for label in ("s2pg-8", "s2pg-pathwise")] == [0.0, 1.0]
    assert weight("ppo", s2pg.make("recall"), "s2pg-8") == 1.0
    body = resolve("gail", s2pg.make("humanoid-ages", backend="gymnasium"), memory="s2pg-8")[0].hyper
    assert (body["pathwise_weight"], body["state_log_std"], body["drift_cost"]) == (0.0, -4.5, 1e-5)


def test_a_memory_of_td3_is_kept_awake_and_blind_ants_are_quiet_on_each_backend():
    for backend, lanes in (("gymnasium", 16), ("mjx", 1024)):
        ant = s2pg.make("ant", backend=backend)
        quiet, louder = (resolve("ppo", ant, kernel=kernel)[1] for kernel in ("cpg", "gru"))
        assert quiet.action_log_std < louder.action_log_std and quiet.lanes == lanes
        assert all(resolve(name, ant)[1].saturation_cost > 0 for name in ("td3", "ddpg"))


# Lengths and schedules -----------------------------------------------------------------------------------------------


def test_segments_longer_than_a_rollout_keep_the_number_of_transitions():
    _, short = resolve("ppo", s2pg.make("recall", k=32), memory="bptt-8")
    _, long = resolve("ppo", s2pg.make("recall", k=32), memory="bptt-64")
    assert long.steps == 64 and long.lanes * long.steps == short.lanes * short.steps


def test_an_annealed_rate_reaches_zero_with_the_run_whatever_its_length():
    env = s2pg.make("pointmass-goal")
    for steps in (1_000_000, 50_000_000):
        _, built = resolve("ppo", env, memory="s2pg-pathwise", steps=steps)
        assert 0 <= built.anneal_updates * built.lanes * built.steps - steps < built.lanes * built.steps


@pytest.fixture
def no_training(monkeypatch):
    """Everything but the training itself, which is not what is asked about."""
    monkeypatch.setattr(training, "train", lambda *_, **__: None)


def test_a_resumed_run_keeps_its_schedule_and_says_where_it_ends(tmp_path, no_training):
    env, said = s2pg.make("pointmass-goal", horizon=8), []
    for steps in (64, 128):
        s2pg.train("ppo", env, hyper=TINY, steps=steps, episodes=1, out=tmp_path, resume=True, say=said.append)
    assert read_config(tmp_path)[0].hyper["anneal_updates"] == 4
    assert said == ["the learning rate reaches 0 after 64 steps; what follows learns nothing"]


@pytest.mark.parametrize("given", [{"steps": 0}, {"seeds": (True,)}, {"seeds": (-1,)}, {"seeds": ()}])
def test_seeds_and_steps_out_of_range_are_refused(given):
    with pytest.raises(UserError):
        resolve("ppo", DISCRETE, **given)


def test_a_run_has_about_as_many_borders_as_asked_for():
    chunks = [resolve("ppo", s2pg.make("recall"), steps=409_600, borders=borders)[0].chunk for borders in (10, 50)]
    assert chunks == [10, 2]
    with pytest.raises(UserError, match="borders must be 1 or more"):
        resolve("ppo", DISCRETE, borders=0)


def test_a_run_goes_into_a_folder_that_names_it():
    asked = Request("ppo", "gym:a/b")
    assert asked.folder == Path("runs/gym-a-b-ppo-s2pg")
    assert dataclasses.replace(asked, kernel="gru").folder == asked.folder
    assert dataclasses.replace(asked, kernel="lstm").folder == Path("runs/gym-a-b-ppo-s2pg-lstm")
    assert dataclasses.replace(asked, out=Path("here")).folder == Path("here")


def test_pathwise_without_privilege_warns(tmp_path, no_training):
    said = []
    s2pg.train(
        "ppo", DISCRETE, memory="s2pg-pathwise", critic="policy", hyper=TINY, steps=16, episodes=1,
        out=tmp_path / "run", say=said.append,
    )  # fmt: skip
    assert len(said) == 1 and "critic" in said[0]


# Algorithms of one's own ---------------------------------------------------------------------------------------------


class Mine(PPO):
    more: float = option(0.5, "what only this one has", above=0)


class Wrapper(Algorithm):
    inner: Algorithm
    share: float = option(0.25, "what the wrapper adds", low=0, high=1)

    plan = property(lambda self: self.inner.plan)

    def init_policy(self, spec, *, key):
        return self.inner.init_policy(spec, key=key)

    def init(self, spec, shared, *, key):
        return self.inner.init(spec, (), key=key)

    def actor(self, policy, explore=True):
        return self.inner.actor(policy, explore)

    def store(self, state, batch):
        return self.inner.store(state, batch)

    def update(self, state, batch, shared, key):
        return self.inner.update(state, batch, (), key)


class Clashing(Wrapper):
    clip: float = option(0.1, "a name that PPO has")


class Hollow(eqx.Module):
    """No algorithm."""


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr("s2pg.algorithms.ALGORITHMS", known := dict(ALGORITHMS))
    for user in ("build", "hyper"):
        monkeypatch.setattr(f"s2pg.config.{user}.ALGORITHMS", known)
    return known


def test_a_new_algorithm_needs_its_class_and_one_line(registry):
    register_algorithm("mine", Mine)
    _, built = resolve("mine", s2pg.make("recall"), memory="bptt-8", hyper={"more": "2"})
    assert isinstance(built, Mine) and built.more == 2.0 and built.lanes > 0 and built.steps > 0
    with pytest.raises(UserError, match="hyper-parameter 'more' must be above 0"):
        resolve("mine", DISCRETE, hyper={"more": 0})


def test_a_wrapper_holds_the_algorithm_it_wraps_with_its_hyper_parameters_and_presets(registry):
    register_algorithm("wrapper", Wrapper, wraps="ppo")
    _, plain = resolve("ppo", s2pg.make("recall"))
    found, built = resolve("wrapper", s2pg.make("recall"), hyper={"share": 1, "clip": 0.3})
    assert isinstance(built, Wrapper) and isinstance(built.inner, PPO)
    assert (built.share, built.inner.clip, built.inner.learning_rate) == (1.0, 0.3, plain.learning_rate)
    assert found.hyper["size"] == 32  # what PPO's presets say of the task


def test_algorithms_that_do_not_fit_are_refused_in_one_line(registry):
    for given, told in (
        (("hollow", Hollow), "must be a subclass of .*PolicyAlgorithm"),
        (("hollow", Hollow, "ppo"), "must be a subclass of .*Algorithm"),
        (("mine", Mine, "ppo"), "needs a field 'inner'"),
        (("wrapper", Wrapper, "pppo"), "unknown algorithm 'pppo'"),
        (("ppo", Mine), "there is an algorithm 'ppo' already: PPO"),
    ):
        with pytest.raises(UserError, match=told):
            register_algorithm(*given)
    register_algorithm("ppo", PPO)  # the same once more is no other
    register_algorithm("clashing", Clashing, wraps="ppo")
    with pytest.raises(UserError, match="algorithm 'clashing' has a hyper-parameter 'clip', which there is already"):
        resolve("clashing", DISCRETE)
