"""Functions with complex inputs, complex outputs, or both."""

from __future__ import annotations

import torch

from tests.zoo.specimen import Specimen, at, complex_normal, normal, specimen

_Z = "complex"

COMPLEX: tuple[Specimen, ...] = (
    specimen("complex square", lambda z: z * z, _Z, z=complex_normal(3)),
    specimen("complex exp", torch.exp, _Z, z=complex_normal(3)),
    specimen("complex sin", torch.sin, _Z, z=complex_normal(3)),
    specimen("complex log", torch.log, _Z, z=complex_normal(3)),
    specimen("complex reciprocal", torch.reciprocal, _Z, z=complex_normal(3)),
    specimen("complex sqrt", torch.sqrt, _Z, z=complex_normal(3)),
    specimen("conjugate", lambda z: z.conj() * 2, _Z, z=complex_normal(3)),
    specimen("modulus", torch.abs, _Z, z=complex_normal(3)),
    specimen("modulus near zero", torch.abs, _Z, z=at([1e-6 + 1e-7j, 3 + 4j], dtype=torch.complex128)),
    specimen("modulus at zero", torch.abs, _Z, "on a kink", z=at([0j], dtype=torch.complex128)),
    specimen("angle", torch.angle, _Z, z=complex_normal(3)),
    specimen("squared modulus", lambda z: (z * z.conj()).real, _Z, z=complex_normal(3)),
    specimen("real and imaginary part", lambda z: (z.real.sin(), z.imag.exp()), _Z, z=complex_normal(3)),
    specimen("complex from real", torch.complex, _Z, x=normal(3), y=normal(3)),
    specimen("polar", lambda r, a: torch.polar(r.exp(), a), _Z, r=normal(3), a=normal(3)),
    specimen("complex matmul", torch.matmul, _Z, a=complex_normal(2, 3), b=complex_normal(3, 2)),
    specimen("hermitian product", lambda a, b: torch.vdot(a, b), _Z, a=complex_normal(3), b=complex_normal(3)),
    specimen("complex times real", lambda z, x: z * x, _Z, z=complex_normal(3), x=normal(3)),
    specimen("complex inverse", torch.linalg.inv, _Z, a=complex_normal(2, 2)),
    specimen("real axis of a complex input", lambda z: z**3, _Z, z=at([1 + 0j, 2 + 0j], dtype=torch.complex128)),
    specimen("fft", torch.fft.fft, _Z, x=normal(5)),
    specimen("inverse fft", torch.fft.ifft, _Z, z=complex_normal(4)),
    specimen("rfft", torch.fft.rfft, _Z, x=normal(6)),
    specimen("irfft", lambda z: torch.fft.irfft(z, 6), _Z, z=complex_normal(4)),
    specimen("fft2 and shift", lambda x: torch.fft.fftshift(torch.fft.fft2(x)), _Z, x=normal(3, 2)),
    specimen("power spectrum", lambda x: torch.fft.rfft(x).abs().square(), _Z, x=normal(6)),
    specimen("phase only", lambda z: z / z.abs(), _Z, z=complex_normal(3)),
    specimen(
        "convolution by fft",
        lambda x, k: torch.fft.irfft(torch.fft.rfft(x, 8) * torch.fft.rfft(k, 8), 8),
        _Z,
        x=normal(4),
        k=normal(3),
    ),
    specimen(
        "quadratic form of a hermitian",
        lambda z, a: (z.conj() @ (a + a.mH) @ z).real,
        _Z,
        z=complex_normal(3),
        a=complex_normal(3, 3),
    ),
    specimen(
        "short-time fourier",
        lambda x: torch.stft(
            x, 4, hop_length=2, window=torch.ones(4, dtype=x.dtype), return_complex=True, center=False
        ),
        _Z,
        x=normal(8),
    ),
)
