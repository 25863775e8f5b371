"""Modules under training: optimizer, best state so far, and how both become a checkpoint."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from colonnade.errors import ConfigError, did_you_mean
from colonnade.nn.compiler import spare_compiler

__all__ = ["Learner", "make_optimizer", "tensors_under"]

_UNFIT = {
    "LBFGS": "evaluates the loss several times per step, which would need as many exchanges with the peers",
    "Muon": "takes weight matrices only, and our layers have biases too",
    "SparseAdam": "wants sparse gradients, which no layer here makes",
}
# torch takes the slow path on CPUs unless told otherwise; a user's own choice among these stands.
_KINDS_OF_STEP = {"fused", "foreach", "differentiable"}


def make_optimizer(
    name: str, parameters: list[nn.Parameter], learning_rate: float, options: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """Return a torch optimizer by its class name; raise ConfigError for unknown names and options."""
    spare_compiler()
    known = {
        candidate: cls
        for candidate, cls in vars(torch.optim).items()
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
    }
    if name not in known:
        raise ConfigError(f"There is no optimizer '{name}' in torch.optim. {did_you_mean(name, known)}")
    if name in _UNFIT:
        raise ConfigError(f"The optimizer {name} does not fit here: it {_UNFIT[name]}. Use Adam, AdamW or SGD.")
    accepted = {
        option: parameter.default
        for option, parameter in inspect.signature(known[name]).parameters.items()
        if option not in ("params", "lr")
    }
    for option, value in options.items():
        if option not in accepted:
            raise ConfigError(f"The optimizer {name} has no option '{option}'. {did_you_mean(option, accepted)}")
        _check_option(option, value, accepted[option])
    # The fused SGD cannot take a parameter that gets its first gradient, and so its momentum, later than others.
    quick = "foreach" if name == "SGD" else "fused"
    fast = {quick: True} if quick in accepted and not _KINDS_OF_STEP & options.keys() else {}
    arguments = {"lr": learning_rate, **fast, **options}
    try:
        # Some options are refused by the first step only, where it would look like a fault of ours.
        trial = nn.Parameter(torch.ones(2, 2, dtype=parameters[0].dtype))
        trial.grad = torch.ones_like(trial)
        known[name]([trial], **arguments).step()
        return known[name](parameters, **arguments)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        said = str(error).partition("\n")[0].rstrip(".")
        raise ConfigError(f"The optimizer {name} refuses its options: {said}. Correct optimizer_options.") from None


def _check_option(option: str, value: Any, default: Any) -> None:
    """Refuse a value of another kind than the default; torch would take any text for true."""
    if option == "differentiable" and value is True:
        raise ConfigError("optimizer_options.differentiable serves no method here. Remove it.")
    if value is None and default is None:
        return
    if isinstance(default, bool) or option in _KINDS_OF_STEP:
        wanted, fits = "true or false", isinstance(value, bool)
    elif isinstance(default, tuple):
        wanted = f"a list of {len(default)} numbers"
        fits = isinstance(value, list | tuple) and len(value) == len(default) and all(map(_fits_number, value, default))
    else:
        wanted, fits = "a number", _fits_number(value, default)
    if not fits:
        raise ConfigError(f"optimizer_options.{option} must be {wanted}. Got {repr(value)[:80]} instead.")


def _fits_number(value: Any, default: Any) -> bool:
    return (value is None and default is None) or (isinstance(value, int | float) and not isinstance(value, bool))


class Learner:
    """Named modules trained together by one party."""

    def __init__(
        self, modules: Mapping[str, nn.Module], optimizer: str, learning_rate: float, options: Mapping[str, Any]
    ) -> None:
        self.modules = dict(modules)
        parameters = [parameter for module in self.modules.values() for parameter in module.parameters()]
        self._parameters = parameters
        self._optimizer = make_optimizer(optimizer, parameters, learning_rate, options) if parameters else None
        # What optimizer.step does, without its bookkeeping for profilers and compilers.
        self._apply = None if self._optimizer is None else inspect.unwrap(type(self._optimizer).step)
        # Plain gradient descent is one call, and its optimizer's own way there takes longer than that.
        self._plain_rate = learning_rate if optimizer == "SGD" and not options else None
        self._first_rate, self._part = learning_rate, 1.0
        self._best: dict[str, torch.Tensor] | None = None

    def zero_gradients(self) -> None:
        """Forget the gradients of the last step."""
        # What optimizer.zero_grad does, without its bookkeeping for profilers.
        for parameter in self._parameters:
            parameter.grad = None

    def clip_gradients(self, norm: float) -> None:
        """Shorten the gradient of all parameters together to this norm, where it is longer."""
        # What torch's clip_grad_norm_ does, at a tenth of its time for a party's few parameters. In few calls:
        # each lets other threads have the interpreter, and where all parties are threads they take it.
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if not gradients:
            return
        lengths = torch._foreach_norm(gradients)
        length = lengths[0].item() if len(lengths) == 1 else math.hypot(*torch.stack(lengths).tolist())
        if not length <= norm:
            for gradient in gradients:
                gradient.mul_(norm / (length + 1e-6))

    def step(self) -> None:
        """Apply the gradients."""
        if self._plain_rate is not None:
            pairs = [(parameter, parameter.grad) for parameter in self._parameters if parameter.grad is not None]
            if pairs:
                parameters, gradients = zip(*pairs, strict=True)
                with torch.no_grad():
                    torch._foreach_add_(parameters, gradients, alpha=-self._plain_rate)
        elif self._apply is not None:
            with torch.no_grad():
                self._apply(self._optimizer)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the steps to come."""
        self._plain_rate = None if self._plain_rate is None else rate
        if self._optimizer is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = rate

    def scale_rate(self, part: float) -> None:
        """Set the learning rate of the steps to come to a part of the first."""
        if part != self._part:
            self._part = part
            self.set_rate(part * self._first_rate)

    def train(self, mode: bool = True) -> None:
        """Switch all modules to training or evaluation."""
        for module in self.modules.values():
            # Asked for in every step; to go through all submodules takes as long as their arithmetic.
            if module.training is not mode:
                module.train(mode)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return all parameters and buffers by name."""
        return {
            f"{name}.{key}": value
            for name, module in self.modules.items()
            for key, value in module.state_dict().items()
        }

    def load_weights(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Set all parameters and buffers."""
        for name, module in self.modules.items():
            module.load_state_dict(tensors_under(f"{name}.", tensors))

    def keep_best(self) -> None:
        """Remember the weights of now as the best so far."""
        self._best = {key: value.detach().clone() for key, value in self.weights().items()}

    def restore_best(self) -> None:
        """Go back to the best weights, if any were kept."""
        if self._best is not None:
            self.load_weights(self._best)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs: tensors, and a JSON document for the optimizer's plain values."""
        tensors = {f"now.{key}": value for key, value in self.weights().items()}
        tensors |= {f"best.{key}": value for key, value in (self._best or {}).items()}
        plain: dict[str, Any] = {}
        if self._optimizer is not None:
            for index, slots in self._optimizer.state_dict()["state"].items():
                for slot, value in slots.items():
                    if isinstance(value, torch.Tensor):
                        tensors[f"optimizer.{index}.{slot}"] = value
                    else:
                        plain[f"{index}.{slot}"] = value
        return tensors, {"optimizer": plain}

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        self.load_weights(tensors_under("now.", tensors))
        self._best = tensors_under("best.", tensors) or None
        if self._optimizer is None:
            return
        # Not load_state_dict: it casts every slot to the parameter's type, and then NAdam does not go on exactly.
        for key, value in {**tensors_under("optimizer.", tensors), **document["optimizer"]}.items():
            index, _, slot = key.partition(".")
            self._optimizer.state[self._parameters[int(index)]][slot] = value


def tensors_under(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
