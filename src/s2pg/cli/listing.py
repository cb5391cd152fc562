"""`s2pg list`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from s2pg.algorithms import ALGORITHMS
from s2pg.config import methods
from s2pg.config import oldpresets as presets
from s2pg.envs.tasks import TASKS, descriptions, prefix_of
from s2pg.errors import unknown
from s2pg.kernels import KERNELS

OTHERS = {
    "gym:": "Any Gymnasium environment with Box or Discrete actions, such as gym:Pendulum-v1.",
    "brax:": "A Brax environment, such as brax:ant (s2pg[brax]).",
    "playground:": "A MuJoCo Playground environment, such as playground:CartpoleBalance (s2pg[playground]).",
    "gymnax:": "A gymnax environment, such as gymnax:CartPole-v1 (s2pg[gymnax]).",
}
OTHERS_OPTIONS = {
    "hide": ("nothing", "indices of observation entries that the policy sees as 0, such as 2,3"),
    "horizon": ("its own", "time limit"),
    "...": ("", "anything else goes to what makes the environment, such as gymnasium.make"),
}
MEANING = {
    "k": "length of an episode: the cue is shown at its first step and asked for at its last",
    "cue": "bit, or real for a number in [-1, 1]",
    "horizon": "steps after which an episode is cut",
    "hide": "what the policy does not see: groups of the observation or indices, such as velocities,3, or none",
    "masses": "each link is up to this share heavier or lighter, anew in every episode",
    "spread": "of masses: uniform, or three for one of -masses, 0 and +masses",
    "noise": "standard deviation of what is added to the policy's view",
    "backend": "gymnasium (C MuJoCo on the host), mjx (on the device), or auto: mjx where there is an accelerator",
    "iterations": "of MJX's solver; 0: as many as the robot needs, 4, or 6 for ant and humanoid",
    "line_searches": "in each iteration of MJX's solver (default: 4)",
    "integrator": "of MJX: model (what the robot's file says), or euler, which is faster and less exact",
    "variants": "models of other masses that MJX draws from (default: 1024)",
    "speed": "of the point, in units a second; the field is 150 units wide, an action lasts 0.6 s",
    "lanes": "environments side by side",
    "steps": "steps of each lane per update",
    "discount": "gamma",
    "action_log_std": "log standard deviation of continuous actions at the start",
    "normalise_obs": "scale observations by their running mean and deviation",
    "epochs": "passes over a batch",
    "minibatches": "gradient steps per pass",
    "learning_rate": "of Adam",
    "critic_learning_rate": "of the critic's Adam; 0: the same",
    "anneal_updates": "updates over which the learning rate falls to 0; 0: it stays",
    "trace": "lambda of the advantages",
    "clip": "how far the importance ratio may leave 1",
    "entropy_action": "weight of the action's entropy",
    "entropy_state": "weight of the internal state's entropy",
    "max_grad_norm": "longer gradients are scaled down to this; 0: never",
    "kl_stop": "an update ends beyond this divergence; 0: never",
    "pathwise_weight": "weight of dV/dz' under s2pg-pathwise",
    "drift_cost": "keeps z' near its old mean under s2pg-pathwise",
    "radius": "delta: how far the joint divergence of decisions may go in one update",
    "damping": "added to the diagonal of the Fisher matrix",
    "cg_steps": "of conjugate gradients, at most",
    "cg_tolerance": "residual of conjugate gradients, relative to the gradient, at which they stop",
    "fisher_share": "share of the samples that the Fisher matrix is taken from",
    "backtracks": "step sizes that the line search tries: 1, 1/2, 1/4 ...",
    "baseline": "subtract the baseline of least variance",
    "size": "units of the internal state",
    "width": "units of the other layers",
    "state_log_std": "log standard deviation of z' under s2pg and s2pg-pathwise (there fixed)",
    "critic_state": "let the plain critic of bptt and window read z",
    "encoder_width": "units of the layer before a recurrent cell; 0: the same as width",
    "solver": "of the differential equation: euler (cpg, ode), rk4 (cpg), heun or bosh3 (ode)",
    "substeps": "of the solver in a control interval",
    "fastest": "largest rate at which z moves to its goal, per control interval",
    "oscillators": "how many; z has three numbers for each",
    "most_frequency": "in Hz: what oscillators may learn to swing with",
    "blind": "read no observation: nothing but oscillators (cpg), nothing at all (mlp)",
    "batch_size": "samples of a gradient step: transitions, or segments under bptt",
    "capacity": "rows of the replay buffer, all lanes together",
    "learning_starts": "environment steps stored before the first update",
    "uniform_warmup": "act uniformly at random until then, instead of with the policy",
    "gradient_steps": "per update, for which each lane makes `steps` steps",
    "critic_first": "gradient steps before the actor begins to learn",
    "target_rate": "tau: how fast slow copies of networks follow",
    "reward_scale": "rewards are multiplied with this before they are learnt from",
    "critics": "how many; targets take the least of their values",
    "actor_value": "which value the actor maximises: min, mean or first of the critics",
    "alpha_action": "temperature of the action's entropy at the start",
    "alpha_state": "temperature of the entropy of z' at the start, under s2pg",
    "alpha_learning_rate": "of the action's temperature",
    "alpha_state_learning_rate": "of the state's temperature",
    "entropy_per_action": "target entropy of each dimension of an action",
    "entropy_per_state": "target entropy of each dimension of z'",
    "target_state_entropy": "count the entropy of z' as a reward (the paper does, the authors' code does not)",
    "log_alpha_loss": "temperatures descend on log alpha (the authors' code) or on alpha (the paper)",
    "policy_delay": "gradient steps of the critic for one of the actor",
    "smoothing_action": "noise on the actions of targets ...",
    "smoothing_action_clip": "... and how far it may go",
    "smoothing_state": "noise on z' of targets ...",
    "smoothing_state_clip": "... and how far it may go",
    "saturation_cost": "keeps z' of the actor out of the corners of [-1, 1], where its gradient vanishes, under s2pg",
    "refresh": "tau_z: how far a replayed z' moves to a new draw; 0: stored states stay as they were",
    "refresh_noise": "draw it with its noise, instead of taking the mode",
    "refresh_first": "the critic learns from the new z' at once, instead of from the stored one",
    "burn_in": "steps before each replayed segment of bptt that bring z up to date without a gradient",
    "zero_head": "begin replayed segments of bptt with the initial state, instead of the stored one",
    "refresh_heads": "how far states stored under bptt move to their recomputed values; 0: not at all",
    "q_network": "of s2pg: plain, or branched with an encoder of its own for (z, z'), as in the authors' code",
}


@dataclass(frozen=True)
class List:
    """List tasks, algorithms, memory labels and kernels; with a name, its options.

    Examples:
      s2pg list
      s2pg list recall
      s2pg list ppo
    """

    computes: ClassVar[bool] = False

    name: Annotated[Positional[str | None], arg(metavar="[NAME]", help_behavior_hint="(default: all)")] = None
    """a task, an algorithm, a memory label or a kernel"""

    def __call__(self) -> int:
        console = Console()
        for table in [_everything, _one][self.name is not None](self.name or ""):
            console.print(table)
        return 0


def _about(cls: type) -> str:
    """The first line of the file that a class has to itself."""
    return (sys.modules[cls.__module__].__doc__ or inspect.getdoc(cls) or "").strip().partition("\n")[0]


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Group:
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    *left, last = columns
    for name in left:
        shown.add_column(name, no_wrap=True)
    shown.add_column(last)
    for row in rows:
        shown.add_row(*(Text(str(cell)) for cell in row))  # as Text: brackets in formulas are no markup
    return Group(Text(title, "bold"), shown)


def _algorithms() -> dict[str, str]:
    return {name: _about(cls) for name, cls in ALGORITHMS.items()}


def _kernels() -> dict[str, str]:
    return {name: _about(cls) for name, cls in KERNELS.items()}


def _tasks() -> dict[str, str]:
    return descriptions() | {f"{prefix}ID": text for prefix, text in OTHERS.items()}


def _task_options(name: str) -> Mapping[str, tuple[Any, str]]:
    if prefix_of(name):
        return OTHERS_OPTIONS
    known = inspect.signature(TASKS[name]).parameters.values()
    defaults = {each.name: "" if each.default is each.empty else each.default for each in known}
    return {each: (default, MEANING.get(each, "")) for each, default in defaults.items()}


def _everything(_: str) -> Iterable[Group]:
    def with_options(task: str) -> str:
        given = [f"{name}={default}" if default != "" else name for name, (default, _) in _task_options(task).items()]
        return " ".join(given[:3] + ["..."] * (len(given) > 3)) if not prefix_of(task) else "hide horizon ..."

    tasks = [(name, with_options(name), text) for name, text in _tasks().items()]
    yield _table("tasks (--task)", ("name", "options (--set)", "what it is"), tasks)
    yield _table("algorithms", ("name", "what it is"), _algorithms().items())
    yield _table("memory (--memory)", ("label", "what it is"), methods.LABELS.items())
    yield _table("kernels (--kernel)", ("name", "what it is"), _kernels().items())


def _one(name: str) -> Iterable[Group]:
    if name in ALGORITHMS:
        # Those that depend on the task have no default; whole episodes have as many steps as it says.
        known = methods.hyper_defaults(name, "gru")  # which has no options of its own
        defaults = known | {"steps": "the task's horizon"} | presets.ALGORITHM.get(name, {})
        rows = [(each, defaults[each], MEANING.get(each, "")) for each in known]
        yield _table(f"{name}: {_algorithms()[name]}", ("hyper-parameter (--hyper)", "default", "what it is"), rows)
        if presets.ALGORITHM.get(name, {}).get("privileged"):
            yield Group(Text("Its critic reads the full state unless --critic policy is given.\n"))
    elif name in TASKS or prefix_of(name):
        prefix = prefix_of(name)
        known = f"{prefix}ID" if prefix else name
        rows = [(each, default, text) for each, (default, text) in _task_options(known).items()]
        yield _table(f"{name}: {_tasks()[known]}", ("option (--set)", "default", "what it is"), rows)
        key = prefix or name
        lines = presets.lines(f"{key}@mjx" if "backend" in _task_options(known) else key)
        given = [(algorithm, task, preset) for (algorithm, task), preset in presets.TASK.items() if task in lines]
        if given:
            texts = [(each, task, " ".join(f"{k}={v}" for k, v in preset.items())) for each, task, preset in given]
            yield _table("presets", ("algorithm", "for", "what differs from its defaults"), texts)
    elif name in KERNELS:
        yield _table("kernel", ("name", "what it is"), [(name, _kernels()[name])])
        own = methods.kernel_options(name)
        rows = [(each, own[each], MEANING.get(each, "")) for each in own]
        if rows:
            yield _table("its own options", ("hyper-parameter (--hyper)", "default", "what it is"), rows)
        where = {key: key if key == name else " ".join(key[:-1]) for key in presets.KERNEL if name in (key, key[-1])}
        given = [(place, " ".join(f"{k}={v}" for k, v in presets.KERNEL[key].items())) for key, place in where.items()]
        if given:
            yield _table("presets", ("for", "what differs from those of others"), given)
    else:
        yield _table("memory", ("label", "what it is"), [(name, _label(name))])


def _label(name: str) -> str:
    if name not in methods.LABELS:
        if not name.startswith(("s2pg", "bptt", "window")):
            raise unknown("name", name, [*TASKS, *ALGORITHMS, *KERNELS, *methods.LABELS])
        label = methods.parse(name)
        name = {"bptt": f"bptt-N{'-last' * label.last}", "window": "window-K"}[label.kind]
    return methods.LABELS[name]
