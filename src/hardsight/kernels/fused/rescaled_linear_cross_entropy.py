# ruff: noqa: N803
"""Triton: gradient rescaling of rows of products, weight and gradient of each row in one kernel."""

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from hardsight.kernels.dispatch import add_product, aligned, product
from hardsight.kernels.fused.angles import softplus
from hardsight.kernels.fused.angular_cross_entropy import BLOCK_ELEMENTS, padded

_WIDEST = 8192


@triton.jit
@no_type_check
def _logits(products, bias, column, classes, BIAS: tl.constexpr):
    z = tl.load(products + column, mask=column < classes, other=float("-inf"))
    if BIAS:
        z += tl.load(bias + column, mask=column < classes, other=0.0).to(tl.float32)
    return z


@triton.jit
@no_type_check
def _rescaled_rows(
    products,
    slopes,
    bias,
    labels,
    log_sample_weight,
    log_p,
    log_weight,
    beta,
    log_beta,
    lam,
    shift,
    classes,
    width,
    products_stride,
    slopes_stride,
    BIAS: tl.constexpr,
    EXP: tl.constexpr,
    SLOPES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """log p and log weight of each row, and its gradient w (p - y) / (2 (1 - p_y)) times exp(-shift)."""
    row = tl.program_id(0).to(tl.int64)
    products += row * products_stride
    label = tl.load(labels + row)
    top = float("-inf")
    mass = 0.0
    for start in range(0, classes, BLOCK):
        column = start + tl.arange(0, BLOCK)
        z = tl.where(column == label, float("-inf"), _logits(products, bias, column, classes, BIAS))
        higher = tl.maximum(top, tl.max(z, 0))
        # Before the first class that is not the label the maximum is -inf, and -inf - -inf is no number.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        mass = mass * tl.exp(top - base) + tl.sum(tl.exp(z - base), 0)
        top = higher
    others = top + tl.log(mass)
    own = tl.load(products + label)
    if BIAS:
        own += tl.load(bias + label).to(tl.float32)
    row_log_p = -softplus(others - own)
    log_power = lam * row_log_p - softplus(own - others)
    if EXP:  # noqa: SIM108, the branch not taken must not be compiled
        row_log_weight = beta * tl.exp(log_power)
    else:
        row_log_weight = log_beta + log_power
    row_log_weight += tl.load(log_sample_weight + row)
    tl.store(log_p + row, row_log_p)
    tl.store(log_weight + row, row_log_weight)
    if SLOPES:
        half = 0.5 * tl.exp(row_log_weight - shift)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)
            z = _logits(products, bias, column, classes, BIAS)
            slope = tl.where(column == label, -half, tl.exp(z - others) * half)
            slope = tl.where(half == 0.0, 0.0, slope)
            tl.store(slopes + row * slopes_stride + column, slope.to(slopes.dtype.element_ty), mask=column < width)


def walk(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    log_sample_weight: Tensor,
    beta: float,
    lam: float,
    exponential: bool,
    shift: float,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """log p, log weight, and the gradients by features, weight and bias of the sum over samples, times exp(-shift)."""
    samples, classes = len(features), len(weight)
    weight = padded(weight)
    width = len(weight)
    log_p = torch.empty(samples, dtype=torch.float32, device=features.device)
    log_weight = torch.empty_like(log_p)
    empty = torch.empty(0, device=features.device)
    by_features, by_weight, by_bias = empty, empty.clone(), empty.clone()
    if slopes_wanted:
        by_features = torch.empty(features.shape, dtype=torch.float32, device=features.device)
        by_weight = torch.empty(weight.shape, dtype=torch.float32, device=features.device)
        by_bias = torch.zeros(width, dtype=torch.float32, device=features.device)
    rows = max(1, min(samples, max(128, BLOCK_ELEMENTS // classes)))
    block = min(_WIDEST, max(16, triton.next_power_of_2(classes)))
    for start in range(0, samples, rows):
        here = slice(start, start + rows)
        count = min(rows, samples - start)
        products = product(features[here], weight.T, aligned(count, width, torch.float32, features.device))
        slopes = aligned(count, width, features.dtype, features.device) if slopes_wanted else empty
        with torch.cuda.device(features.device if features.device.type == "cuda" else -1):
            _rescaled_rows[(len(products),)](
                products,
                slopes,
                bias,
                labels[here],
                log_sample_weight[here],
                log_p[here],
                log_weight[here],
                beta,
                math.log(beta) if beta > 0 else -math.inf,
                lam,
                shift,
                classes,
                width,
                products.stride(0),
                slopes.stride(0) if slopes_wanted else 0,
                BIAS=bias is not None,
                EXP=exponential,
                SLOPES=slopes_wanted,
                BLOCK=block,
                num_warps=max(1, min(16, block // 256)),
            )
        del products
        if slopes_wanted:
            product(slopes, weight, by_features[here])
            (product if start == 0 else add_product)(slopes.T, features[here], by_weight)
            if bias is not None:
                by_bias += slopes.sum(0, dtype=torch.float32)
    return log_p, log_weight, by_features, by_weight[:classes], by_bias[:classes]
