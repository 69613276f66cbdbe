"""What an exploration returns: grades, the smallest inputs, the same twice; and every kind of input that it takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradverify
from gradverify.result import Exploration, Grade, Side
from tests.exploration.hidden_mistakes import points, pooled, saving, scattered

pytestmark = pytest.mark.slow

POOL = saving(lambda x, size, stride: x.unfold(-1, size, stride).mean(-1), pooled)


def explored(function: Any, *inputs: Any, **options: Any) -> Exploration:
    return gradverify.explore(function, inputs, **{"checks": ("gradcheck",), "budget": 40, **options})


def clipped(x: Tensor) -> Tensor:
    return torch.where(x > 2.0, 2.0 * x, x)


CLIPPED = saving(clipped, lambda grad, x: grad)  # right up to 2


def test_failure_has_the_smallest_inputs_and_what_was_changed() -> None:
    found = explored(POOL, points(2, 8), 2, 2, fixed=("size",))
    first = found.failures[0]
    assert first.grade is Grade.FAILURE
    assert first.changes == ("stride: 1 (was 2)", "x: shape [1, 3] (was [2, 8])")
    assert first.inputs == "x: {values: [[1.0, 1.0, 1.0]], requires_grad: true}\nsize: 2\nstride: 1"
    assert first.message.startswith("1 entry of d output / d x differs; worst output[0, 0] by x[0, 1]")
    (check,) = first.checks
    assert [(finding.code, finding.cause) for finding in check.findings] == [("GV101", "missing-broadcast-sum")]
    assert check.findings[0].elements


def test_duplicates_are_reduced_to_one_entry_used_twice() -> None:
    function = saving(lambda x, index: x[index], scattered)
    first = explored(function, points(4), torch.tensor([0, 2, 3]), fixed=("x",), budget=30).failures[0]
    assert "index: first two equal" in first.changes
    assert "index: {values: [0, 0], dtype: int64, requires_grad: false}" in first.inputs


def test_failing_value_is_made_round() -> None:
    first = explored(CLIPPED, points(6)).failures[0]
    assert first.changes[0] == "x: values around 2"
    assert first.inputs == "x: {values: [3.0], requires_grad: true}"


@pytest.mark.parametrize("place", [(0, 0), (1, 2), (2, 4)])
def test_failing_entry_is_made_small_wherever_it_stands(place: tuple[int, int]) -> None:
    x = torch.full((3, 5), 0.5, dtype=torch.float64)
    x[place] = 1.5
    wrong = saving(lambda x, k: x.sin(), lambda grad, x, k: grad * torch.where((x > 1) & (k > 3), 0.0, x.cos()))
    first = explored(wrong, x.requires_grad_(), 3).failures[0]
    assert "x: shape [1, 1] (was [3, 5])" in first.changes


def test_same_arguments_give_the_same_result() -> None:
    first, second = (explored(POOL, points(2, 8), 2, 2, budget=20) for _ in range(2))
    assert first == second


def test_later_tries_of_the_same_kind_are_counted() -> None:
    found = explored(POOL, points(2, 8), 2, 2)
    assert len(found.failures) <= 5
    assert sum(failure.also for failure in found.failures) > 0


def test_later_tries_are_told_with_all_that_they_change() -> None:
    def backward(grad: Tensor, x: Tensor, flip: bool, scale: float) -> Tensor:
        return grad * x.cos() * (2 if flip and len(x) != 4 else 1)

    wrong = saving(lambda x, flip, scale: x.sin(), backward)
    (found,) = explored(wrong, points(4), False, 2.0, budget=300).failures
    assert found.also > 0
    assert "flip: true" not in found.also_at and "flip: true (was false)" not in found.also_at


def test_default_that_is_as_written_is_no_change() -> None:
    wrong = saving(lambda x, k=2: x.sin() * k, lambda grad, x, k=2: grad * x.cos() * (3 if len(x) == 5 else k))
    (found,) = explored(wrong, points(4), budget=40).failures
    assert found.changes == ("x: shape [5] (was [4])",)


def test_zeros_that_only_one_input_needs_are_not_told_of_all() -> None:
    wrong = saving(
        lambda x, y: x * y.sin(), lambda grad, x, y: (grad * y.sin(), grad * y.cos() * torch.where(x == 0, 1.0, x))
    )
    (found, *_) = explored(wrong, points(3), points(3), budget=40).failures
    assert "all tensors 0" not in found.changes, found.inputs


def test_question_that_several_changes_raise_is_listed_once() -> None:
    def backward(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if x.dim() > 1 or y.dim() > 1:
            raise ValueError("vectors only")
        return grad * y, grad * x

    found = explored(saving(lambda x, y: x * y, backward), points(3), points(3), budget=120)
    assert [question.message.rpartition(" ")[0].partition("raised ")[2] for question in found.questions] == [
        "ValueError: vectors"
    ]
    assert found.questions[0].also > 0


def test_result_is_true_without_failures() -> None:
    assert not explored(POOL, points(2, 8), 2, 2, budget=20)
    right = explored(torch.sin, points(3), budget=10)
    assert right and repr(right) == "<Exploration: 10 tries>"


def test_backward_that_refuses_what_forward_accepts_is_a_question() -> None:
    def backward(grad: Tensor, x: Tensor, size: int) -> Tensor:
        return grad.reshape(len(x) // size, 1).expand(len(x) // size, size).reshape(len(x)) * x.cos()

    def forward(x: Tensor, size: int) -> Tensor:
        return torch.stack([part.sin().sum() for part in x.split(size)])

    found = explored(saving(forward, backward), points(6), 2)
    assert found.failures == ()
    assert found
    question = next(each for each in found.questions if each.changes[0].startswith("x.shape[0]"))
    assert question.message.startswith("forward runs, but backward raised RuntimeError: shape '")
    assert question.checks == ()
    assert question.inputs.startswith("x: {values: [")


@pytest.mark.parametrize("written", [2.0, torch.ones(3, dtype=torch.float64)])
def test_backward_that_refuses_the_default_of_an_argument_is_a_failure(written: Any) -> None:
    def forward(x: Tensor, scale: Any = None) -> Tensor:
        return x.sin() if scale is None else x.sin() * scale

    def backward(grad: Tensor, x: Tensor, scale: Any) -> Tensor:
        return grad * x.cos() * scale

    found = explored(saving(forward, backward), points(3), written, budget=20)
    assert [(each.number, each.changes[0].partition(" (was")[0]) for each in found.failures] == [(1, "scale: none")]
    assert "backward raised TypeError: unsupported operand" in found.failures[0].message
    assert [each.code for each in found.failures[0].checks[0].findings] == ["GV903"]


def test_wrong_numbers_far_away_are_extreme() -> None:
    cut = saving(lambda x: x.clone(), lambda grad, x: torch.where(x.abs() > 5e6, 0.0, grad))
    found = explored(cut, points(3), budget=200, ranges={})
    assert [each.changes[0] for each in found.extremes] == ["x: × 1e+08"]
    assert found.failures == ()
    assert found


def test_constant_that_is_minus_infinite_is_an_extreme_unless_the_code_names_it() -> None:
    def backward(grad: Tensor, x: Tensor, bias: Tensor) -> Tensor:
        return grad * x.cos() * (bias - bias + 1)  # NaN in place of 1

    biased = saving(lambda x, bias: x.sin() + bias.exp(), backward)
    found = explored(biased, points(2, 3), points(2, 3).detach(), budget=200)
    assert [each.changes[0] for each in found.extremes] == ["bias: first entry -inf"]
    assert found.failures == ()
    named = saving(lambda x, bias: x.sin() + bias.masked_fill(bias > 5, -torch.inf).exp(), backward)
    found = explored(named, points(2, 3), points(2, 3).detach(), budget=200)
    assert any("bias: first entry -inf" in each.changes for each in found.failures)


def test_second_derivative_is_explored_too() -> None:
    class Slope(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, grad: Tensor, x: Tensor) -> Tensor:
            ctx.save_for_backward(grad, x)
            return grad * 3 * x**2

        @staticmethod
        def backward(ctx: Any, over: Tensor) -> tuple[Tensor, Tensor]:
            grad, x = ctx.saved_tensors
            return over * 3 * x**2, over * grad * 6 * x.abs()

    cube = saving(lambda x: x**3, lambda grad, x: Slope.apply(grad, x))
    found = explored(cube, points(3, positive=True), checks=("gradcheck", "gradgradcheck"))
    assert {check.check for failure in found.failures for check in failure.checks} == {"gradgradcheck"}


def test_wrong_backward_at_the_inputs_as_written_is_told() -> None:
    found = explored(saving(lambda x: x.sin(), lambda grad, x: grad), points(3))
    assert (found.tries, found.message) == (0, "the gradient is wrong at the inputs as written")
    assert found.discoveries == ()


def test_second_derivative_that_is_wrong_as_written_is_left_out() -> None:
    def backward(grad: Tensor, x: Tensor, size: int, stride: int) -> Tensor:
        return pooled(grad, x, size, stride) + (x - x.detach())  # its derivative is one too large

    function = saving(lambda x, size, stride: x.unfold(-1, size, stride).mean(-1), backward)
    found = explored(function, points(2, 8), 2, 2, checks=("gradcheck", "gradgradcheck"), fixed=["size"])
    assert found.message == "the second derivative is wrong at the inputs as written, and was left out"
    assert found.failures[0].changes[0] == "stride: 1 (was 2)"
    assert f"1 failure; {found.message}" in " ".join(str(found).split())
    alone = explored(function, points(2, 8), 2, 2, checks=("gradgradcheck",))
    assert (alone.tries, alone.message) == (0, "the second derivative is wrong at the inputs as written")


def test_backward_that_raises_at_the_inputs_as_written_is_told() -> None:
    def refuses(grad: Tensor, x: Tensor) -> Tensor:
        raise ValueError("not today")

    found = explored(saving(lambda x: x.sin(), refuses), points(3))
    assert (found.tries, found.message) == (0, "at the inputs as written, backward raised ValueError: not today")


def test_forward_that_raises_at_the_inputs_as_written_is_told() -> None:
    found = explored(lambda x: x.reshape(7), points(3))
    assert found.tries == 0
    assert found.message.startswith("the inputs as written cannot be tried: shape '[7]' is invalid")


def test_what_no_try_exercised_is_told() -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.where(x > 3.5e3, x.exp(), x.sin())

    found = explored(forward, points(3), ranges={"x": (-2, 2)})
    (entry,) = found.uncovered
    assert (entry.text, entry.within, entry.never) == ("x > 3.5e3", "forward", Side.TRUE)
    assert entry.file.endswith("test_findings.py")


def test_condition_that_a_try_exercises_is_not_told() -> None:
    assert explored(lambda x: torch.where(x > 6, x.sin(), x.cos()), points(3)).uncovered == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_low_precision(dtype: torch.dtype) -> None:
    x = points(4).detach().to(dtype).requires_grad_()
    assert explored(lambda x: x.sin(), x, budget=20).failures == ()
    found = explored(POOL, points(2, 8).detach().to(dtype).requires_grad_(), 2, 2, budget=40)
    told = [phrase for failure in found.failures for phrase in (*failure.changes, *failure.also_at)]
    assert any("stride: 1 (was 2)" in phrase for phrase in told)


def test_complex_inputs() -> None:
    z = torch.complex(points(4).detach(), points(4).detach().flip(0)).requires_grad_()
    assert explored(lambda z: z * z.conj(), z, budget=20).failures == ()
    wrong = saving(lambda z, turn: z * (1j if turn else 1), lambda grad, z, turn: grad * (1j if turn else 1))
    found = explored(wrong, z, False, budget=20)
    assert found.failures[0].changes[0] == "turn: true (was false)"


def test_list_of_tensors() -> None:
    class Joined(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *parts: Tensor) -> Tensor:
            ctx.sizes = [len(part) for part in parts]
            return torch.cat(parts)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            size = ctx.sizes[-1]
            return tuple(grad[number * size : number * size + each] for number, each in enumerate(ctx.sizes))

    def joined(parts: list[Tensor]) -> Tensor:
        found: Tensor = Joined.apply(*parts)  # type: ignore[no-untyped-call]
        return found

    found = explored(joined, [points(3), points(3).detach().requires_grad_()])
    assert found.failures
    assert any("parts[0]: shape" in phrase for each in found.failures for phrase in each.changes)


def test_arguments_of_a_variadic_forward() -> None:
    found = explored(lambda *given: given[0] * given[1] + given[2], points(3), points(3), 2.0, budget=60)
    assert (found.tries, found.failures, found.message) == (60, (), "")


def test_inputs_without_a_form_in_yaml_have_no_text() -> None:
    backward = saving(lambda x, up: x.exp() if up else x.neg(), lambda grad, x, up: grad * x.exp())
    found = explored(lambda *given: backward.apply(*given), points(3), True, budget=20)
    assert found.failures[0].changes[0] == "given[1]: false (was true)"
    assert (found.failures[0].inputs, found.failures[0].spec) == ("", "")


def test_module_with_parameters() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), 1.5, dtype=torch.float64))

        def forward(self, x: Tensor, negative: bool = False) -> Tensor:
            found: Tensor = SCALED.apply(x, self.weight, negative)  # type: ignore[no-untyped-call]
            return found

    def backward(grad: Tensor, x: Tensor, weight: Tensor, negative: bool) -> tuple[Tensor, Tensor]:
        return grad * weight * (-1 if negative else 1), grad * x

    SCALED = saving(lambda x, weight, negative: x * weight * (-1 if negative else 1), backward)
    module = Scale()
    before = module.weight.detach().clone()
    found = explored(module, points(3))
    assert found.failures[0].changes[0] == "negative: true (was false)"
    assert {finding.wrt for finding in found.failures[0].checks[0].findings} == {"weight"}
    assert torch.equal(module.weight, before) and module.weight.grad is None


def test_reference_is_what_outputs_are_compared_with() -> None:
    def kernel(x: Tensor, up: bool) -> Tensor:
        return x.exp() if up else x.neg().exp() + 1e-2

    def plain(x: Tensor, up: bool) -> Tensor:
        return x.exp() if up else x.neg().exp()

    found = explored(kernel, points(3), True, checks=None, reference=plain, budget=40)
    assert found.failures[0].changes[0] == "up: false (was true)"
    assert found.failures[0].checks[0].check == "reference"


def test_check_against_a_reference_needs_one() -> None:
    with pytest.raises(ValueError, match="`reference` compares with a reference, and there is none"):
        explored(torch.sin, points(3), checks=("reference",))


def test_sparse_input_is_judged() -> None:
    sparse = (points(3, 3).detach() + 2).to_sparse().requires_grad_()
    found = gradverify.explore(lambda a, b: torch.sparse.mm(a, b), (sparse, points(3, 2)), budget=20)
    assert (found.failures, found.tries) == ((), 20)


def test_a_negative_zero_is_shown_as_zero() -> None:
    found = explored(saving_inverse(), torch.tensor([-0.3, 0.7], dtype=torch.float64, requires_grad=True))
    assert any("0.0" in failure.inputs for failure in found.failures)
    assert not any("-0.0" in failure.inputs for failure in found.failures)


def saving_inverse() -> type[torch.autograd.Function]:
    """Return x·|x| whose backward divides by x."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * x.abs()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return grad * 2 * x * x.abs() / x

    return Square


def test_cause_that_would_show_at_other_values_too_is_not_named() -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad * torch.where(x.abs() < 2, x.cos(), torch.zeros_like(x))  # zero beyond a bound, not everywhere

    found = gradverify.explore(saving(lambda x: x.sin(), backward), (points(4),), checks=("gradcheck",))
    causes = {finding.cause for failure in found.failures for check in failure.checks for finding in check.findings}
    assert found.failures and "detached" not in causes


def test_cause_that_only_small_inputs_show_is_not_named() -> None:
    def forward(x: Tensor, mixed: bool) -> Tensor:
        if len(x) < 4:
            raise ValueError("four rows at least")
        return x.sin()

    def backward(grad: Tensor, x: Tensor, mixed: bool) -> Tensor:
        own = grad * x.cos()
        return own.cumsum(-1) + own.flip(-1) if mixed else own  # twice the gradient of a single column

    (found,) = explored(saving(forward, backward), points(4, 6), False).failures
    assert "x: shape [4, 1] (was [4, 6])" in found.changes
    assert [finding.cause for finding in found.checks[0].findings] == [None]


class Remembers(torch.autograd.Function):
    """The sine; after a call with an entry above 5, all gradients are twice as large."""

    factor = 1.0

    @staticmethod
    def forward(ctx: Any, x: Tensor, far: float) -> Tensor:
        ctx.save_for_backward(x)
        if bool((x > far).any()):
            Remembers.factor = 2.0
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0].cos() * Remembers.factor, None


def test_state_that_an_earlier_try_left_behind_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remembers, "factor", 1.0)
    found = explored(Remembers, points(4), 5.0, budget=60)
    assert all(each.changes[-1].startswith("now also at the inputs as written") for each in found.failures)
    assert found.failures
    assert not any("as written" in phrase for phrase in explored(CLIPPED, points(6)).failures[0].changes)


def test_mistake_that_shows_in_several_pairs_is_listed_once() -> None:
    def backward(grad: Tensor, x: Tensor, flip: bool) -> Tensor:
        seen = grad * x.cos()
        return torch.where((x == x.flip(0)) & flip, seen + 1, seen)

    found = gradverify.explore(saving(lambda x, flip: x.sin(), backward), (points(4), False), checks=("gradcheck",))
    assert len(found.failures) == 1


def test_names_of_sizes_are_not_shown_without_what_they_stand_for() -> None:
    x = points(4, 3)
    wrong = saving(lambda x, up: x.sin() if up else x.exp(), lambda grad, x, _: grad * x.cos())
    found = gradverify.explore(wrong, (x, True), dims={"x": ("n", "m")}, checks=("gradcheck",))
    assert "shape" not in found.failures[0].inputs


def test_argument_that_smaller_sizes_do_not_need_is_put_back() -> None:
    def backward(grad: Tensor, x: Tensor, n: int) -> Tensor:
        return grad * x.cos() * (2 if n != 5 or x.numel() == 1 else 1)

    found = gradverify.explore(saving(lambda x, n: x.sin(), backward), (points(4), 5), checks=("gradcheck",))
    assert not any("n: " in phrase for phrase in found.failures[0].changes), found.failures[0].changes


def test_size_above_a_large_chunk_is_found_and_keeps_the_sizes_that_belong_to_it() -> None:
    chunk = 65_536

    def forward(x: Tensor, labels: Tensor, size: int = chunk) -> Tensor:
        sums = torch.stack([part.exp().sum(-1) for part in x.split(size, -1)]).sum(0)
        return sums - x.gather(-1, labels[:, None])[:, 0]  # of a single label, it would be broadcast

    def backward(grad: Tensor, x: Tensor, labels: Tensor, size: int = chunk) -> Tensor:
        found = torch.cat([x[:, :size].exp(), torch.zeros_like(x[:, size:])], -1)
        return found.scatter_add(-1, labels[:, None], -torch.ones_like(x)) * grad[:, None]

    rows = points(4, 10), torch.tensor([1, 3, 0, 7])
    (found,) = explored(saving(forward, backward), *rows, fixed=["size"], budget=120).failures
    assert found.changes == (f"x: shape [1, {chunk + 1}] (was [4, 10])", "labels: shape [1] (was [4])")


def test_one_input_that_makes_other_gradients_wrong_at_other_tries_is_listed_once() -> None:
    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        rstd = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        return (x - x.mean(-1, keepdim=True)) * rstd, rstd

    def backward(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        normed, rstd = parts(x)
        normed = normed * w / torch.where(w >= 0, w.clamp(min=1e-5), w.clamp(max=-1e-5))  # as from the output
        scaled = grad * w
        along = normed * (scaled * normed).mean(-1, keepdim=True)
        return rstd * (scaled - scaled.mean(-1, keepdim=True) - along), (grad * normed).sum(0)

    found = explored(saving(lambda x, w: parts(x)[0] * w, backward), points(4, 6), points(6), budget=260)
    names = [failure.changes[0].partition(":")[0] for failure in found.failures]
    assert names.count("w") == 1


def test_inputs_that_are_not_finite_are_no_singular_matrices() -> None:
    x = points(2, 3).detach()
    x[0, 1] = torch.nan
    wrong = saving(lambda x, k: (x * k).nan_to_num(), lambda grad, x, k: grad * (2 if k == 2 else 1) * x.isfinite())
    found = gradverify.explore(wrong, (x.requires_grad_(), 2), checks=("gradcheck",))
    assert found.failures and not found.broken


def test_two_mistakes_that_need_the_same_sizes_are_both_listed() -> None:
    def forward(x: Tensor, twice: bool, masked: bool) -> Tensor:
        if (twice or masked) and x.shape[-1] != x.shape[-2]:
            raise ValueError("square matrices only")
        return x.sin()

    def backward(grad: Tensor, x: Tensor, twice: bool, masked: bool) -> Tensor:
        found = grad * x.cos() * (2 if twice else 1)
        return torch.where(x.cos() > 0.5, 0.0, found) if masked else found

    found = gradverify.explore(saving(forward, backward), (points(3, 5), False, False), checks=("gradcheck",))
    assert {failure.changes[0] for failure in found.failures} == {"twice: true (was false)", "masked: true (was false)"}


def test_flag_that_needs_a_larger_size_leaves_ascending_indices_alone() -> None:
    def forward(x: Tensor, index: Tensor, other: Tensor, transpose: bool) -> Tensor:
        rows, columns = (other, index) if transpose else (index, other)
        return x.new_zeros(4).index_add(0, rows, x[columns].sin())

    def backward(grad: Tensor, x: Tensor, index: Tensor, other: Tensor, transpose: bool) -> Tensor:
        return torch.zeros_like(x).index_add(0, other, grad[index] * x[other].cos())  # as if it were not transposed

    written = (points(3), torch.tensor([0, 1, 2, 3]), torch.tensor([1, 0, 2, 2]), False)  # 3 is no index of x
    found = gradverify.explore(saving(forward, backward), written, checks=("gradcheck",))
    assert [failure.changes[0] for failure in found.failures] == ["transpose: true (was false)"]


@pytest.mark.parametrize("eps", [1e-9, 1e-3])
def test_number_that_is_far_larger_than_written_is_an_extreme(eps: float) -> None:
    forgets = saving(
        lambda x, eps: x.sin() * (1 + eps), lambda grad, x, eps: grad * x.cos() * (1 + eps if eps < 0.9 else 1)
    )
    found = explored(forgets, points(3), eps, budget=120)
    grades = {each.grade for each in found.discoveries if each.changes[0].startswith("eps: 1.0")}
    assert grades == {Grade.EXTREME if eps < 1e-6 else Grade.FAILURE}


def test_positive_tensors_stay_positive_while_a_failure_is_made_small() -> None:
    forgotten = saving(
        lambda x, weight=None: x.sin() if weight is None else x.sin() * weight.view(-1)[0],
        lambda grad, x, *_: grad * x.cos(),
    )
    found = gradverify.explore(forgotten, (points(3), None), checks=("gradcheck",), budget=60)
    failure = found.failures[0]
    assert any(phrase.startswith("weight: ") and phrase.endswith("(was none)") for phrase in failure.changes)
    assert "-" not in failure.inputs.split("weight")[1]
    assert {finding.cause for check in failure.checks for finding in check.findings}.isdisjoint({"sign-flip"})


def test_what_the_contract_says_is_beside_what_differs() -> None:
    def unwritten(grad: Tensor, x: Tensor, count: int) -> Tensor:
        gradient = torch.empty_like(x)
        gradient[:count] = grad
        return gradient

    first = saving(lambda x, count: x[:count].clone(), unwritten)
    found = explored(first, points(4), 4, checks=("gradcheck", "contract"))
    assert found.failures
    for failure in found.failures:
        compared, contract = failure.checks
        assert (compared.check, contract.check) == ("gradcheck", "contract")
        assert "GV409" in {finding.code for finding in contract.findings}


def test_dtype_that_is_put_back_is_not_named() -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad * torch.where((x == 0).all(), torch.zeros_like(x), x.cos())

    found = explored(saving(lambda x: x.sin(), backward), points(4), budget=200)
    phrases = [phrase for failure in found.failures for phrase in failure.changes]
    assert phrases and not any("float32" in phrase for phrase in phrases)
