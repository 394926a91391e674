"""Training steps in float32 with reduce_order=fixed, written from docs/bits.md alone in plain NumPy: one order, one rounding."""
import math

import numpy as np

f32, f64 = np.float32, np.float64
DEFAULTS = {"seed": 1337, "sampling": "epoch", "norm": "layernorm", "mlp": "gelu", "position": "learned", "n_kv_head": 0, "qk_norm": "False",
            "logit_softcap": 0, "z_loss": 0, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "min_lr": 6e-5, "optimizer": "adamw",
            "muon_momentum": 0.95, "muon_learning_rate": 0}  # fmt: skip
ONE, ZERO = f32(1), f32(0)


def of(text):
    """The numbers of hexadecimal texts."""
    return [float.fromhex(word) for word in text.split()]


def number(text):
    return f32(float.fromhex(text))


def fma(a, b, c):
    """a * b + c of float32, rounded once. The product of two float32 is exact in float64. The sum is rounded to odd: where it is not
    exact, its last bit is 1, and then rounding it to float32 is rounding the exact sum (Boldo and Melquiond, 2008)."""
    product, c = f64(a) * f64(b), f64(c)
    total = np.atleast_1d(product + c)
    there = total - product
    rest = (product - (total - there)) + (c - there)  # the exact error of the sum (Knuth)
    bits = total.view(np.int64)
    even = (rest != 0) & (bits & 1 == 0)
    bits += np.where(even, np.where((rest > 0) == (total > 0), 1, -1), 0)
    return total.astype(f32).reshape(np.broadcast(a, b, c).shape)


def turned(a):
    return np.swapaxes(a, -1, -2)


def rows(x):
    return x.reshape(-1, x.shape[-1])


def product(a, b, start=ZERO):
    out = np.zeros((*a.shape[:-1], b.shape[-1]), f32) + start
    for k in range(a.shape[-1]):
        out = fma(a[..., k, None], b[..., k, None, :], out)
    return out


def lanes(x, y=None):
    """16 sums of the last axis of x, or of x * y."""
    shape, pad = (*x.shape[:-1], -1, 16), [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 16)]
    x = np.pad(x, pad).reshape(shape)
    y = None if y is None else np.pad(y, pad).reshape(shape)
    sums = np.zeros((*x.shape[:-2], 16), f32)
    for i in range(x.shape[-2]):
        sums = sums + x[..., i, :] if y is None else fma(x[..., i, :], y[..., i, :], sums)
    return sums


def joined(sums):
    for half in 8, 4, 2, 1:
        sums = sums[..., :half] + sums[..., half : 2 * half]
    return sums


def row_sum(x, y=None):
    """It keeps the axis, with one element."""
    return joined(lanes(x, y))


def columns(x, y=None, run=32):
    x, y, sums = rows(x), None if y is None else rows(y), []
    for i in range(0, len(x), run):
        sums.append(np.zeros(x.shape[-1], f32))
        for j in range(i, min(i + run, len(x))):
            sums[-1] = sums[-1] + x[j] if y is None else fma(x[j], y[j], sums[-1])
    return sum(sums)


def chain(x, start, terms):
    """start * x + terms[0], and so on, by fma."""
    for term in terms:
        start = fma(start, x, f32(term))
    return start


def exp(x):
    least, log2e, high, low, *terms = of("-0x1.5d3334p+6 0x1.715476p+0 -0x1.63p-1 0x1.bd0106p-13 0x1.6db42ap-10 0x1.123b56p-7 0x1.55545ep-5 0x1.55548ep-3 0x1p-1")
    x = np.minimum(f32(88), np.maximum(f32(least), x))
    e = fma(x, f32(log2e), f32(12583039))
    n = e - f32(12583039)
    r = fma(n, f32(low), fma(n, f32(high), x))
    p = chain(r, f32(terms[0]), terms[1:])
    return (fma(p, r * r, r) + ONE) * (e.view(np.uint32) << np.uint32(23)).view(f32)


def tanh(x):
    least, *terms = of("0x1.70a3d8p-4 0x1.664f48p-6 -0x1.ba1ba2p-5 0x1.111112p-3 -0x1.555556p-2")
    s = x * x
    return np.where(s < f32(least), fma(x * s, chain(s, f32(terms[0]), terms[1:]), x), ONE - f32(2) / (exp(x + x) + ONE))


def activation(x, form):
    """The value, and a function from its gradient to that of x."""
    if form == "swiglu":
        gate, up = np.split(x, 2, axis=-1)
        h = ONE / (ONE + exp(-gate))
        return gate * h * up, lambda d: np.concatenate([d * up * h * fma(gate, ONE - h, ONE), d * gate * h], -1)
    if form == "relu2":
        value, slope = np.maximum(x, ZERO) * np.maximum(x, ZERO), f32(2) * np.maximum(x, ZERO)
    elif form == "gelu:tanh":
        a, b, c = map(f32, of("0x1.988454p+0 0x1.6e4e26p-5 0x1.12ba9ep-3"))
        g = ONE / (ONE + exp(x * -a * fma(x * x, b, ONE)))
        value, slope = x * g, fma(x * g * (ONE - g), a * fma(x * x, c, ONE), g)
    else:
        first, *terms = of("0x1.a574f4p-6 -0x1.38f496p-3 0x1.2f3b12p-2 -0x1.a572d8p-3 0x1.9d344ap-3 0x1.0dbd5p-5 0x1.a8f27ep-4 0x1.93865ep-4 0x1.98c53ep-4")
        e, t = exp(x * x * f32(-0.5)), ONE / fma(np.abs(x), f32(0.25), ONE)
        tail = e * t * chain(t, f32(first), terms)
        c = np.where(x > 0, ONE - tail, tail)
        value, slope = x * c, fma(x, e * number("0x1.988454p-2"), c)
    return value, lambda d: d * slope


# ---- float64, without fma

HIGH, LOW, LOG2E, ROOT_HALF = of("0x1.62e42feep-1 0x1.a39ef35793c76p-33 0x1.71547652b82fep+0 0x1.6a09e667f3bcdp-1")


def polynomial(terms, x):
    total = terms[-1]
    for term in terms[-2::-1]:
        total = total * x + term
    return total


def nearest(x):
    return (x + float.fromhex("0x1.8p52")) - float.fromhex("0x1.8p52")


def log(x):
    m, k = np.frexp(f64(x))  # m from 0.5 to 1
    m, k = np.where(m < ROOT_HALF, 2 * m, m), np.where(m < ROOT_HALF, k - 1, k)
    f = m - 1
    s = f / (m + 1)
    z = s * s
    return k * HIGH + (f - (s * (f - 2 * z * polynomial([1 / i for i in range(3, 22, 2)], z)) - k * LOW))


def exp64(x):
    n = nearest(x * LOG2E)
    return polynomial([1 / math.factorial(i) for i in range(14)], (x - n * HIGH) - n * LOW) * 2.0**n


def turn(x, quarters):
    """sin(x + quarters * pi / 2)"""
    turns, *parts = of("0x1.45f306dc9c883p-1 0x1.921fb544p+0 0x1.0b4611a6p-34 0x1.3198a2e037073p-69")
    n = nearest(x * turns)
    for part in parts:
        x = x - n * part
    quarters, z = quarters + int(n), x * x
    if quarters % 2:
        value = 1 + z * polynomial([(-1) ** i / math.factorial(2 * i) for i in range(1, 10)], z)
    else:
        value = x + x * (z * polynomial([(-1) ** i / math.factorial(2 * i + 1) for i in range(1, 9)], z))
    return -value if quarters & 2 else value


def power(x, n):
    p = 1.0
    while n:
        p, x, n = p * x if n & 1 else p, x * x, n >> 1
    return p


# ---- the model


class MicroBatch:
    """Forward and backward pass. An operation returns its value and a function from the gradient of the value to that of its input,
    which also leaves the gradients of weights in `gradients`."""

    def __init__(self, keys, weights):
        self.keys, self.weights, self.gradients, self.shared = keys, weights, {}, keys["n_head"] // (keys["n_kv_head"] or keys["n_head"])
        self.D = keys["n_embd"] // keys["n_head"]

    def linear(self, name, x):
        w, b = self.weights[name + ".weight"], self.weights.get(name + ".bias", ZERO)
        plain = "c_attn" in name and self.keys["position"] == "learned" and self.keys["qk_norm"] == "False" and self.shared == 1

        def backward(d):
            self.gradients[name + ".weight"] = product(rows(x).T, rows(d))
            self.gradients[name + ".bias"] = sum(sum(sequence) for sequence in d) if plain else columns(d)
            return product(d, w.T)

        return product(x, w, b), backward

    def norm(self, name, x):
        w, b, C = self.weights[name + ".weight"], self.weights.get(name + ".bias", ZERO), f32(x.shape[-1])
        centred = self.keys["norm"] == "layernorm"
        v = x - row_sum(x) / C if centred else x
        r = ONE / np.sqrt(row_sum(v, v) / C + number("0x1.4f8b58p-17"))
        u = v * r

        def backward(d, start=ZERO):
            self.gradients[name + ".weight"], self.gradients[name + ".bias"] = columns(d, u), columns(d)
            g = d * w
            return fma(r, (g - row_sum(g) / C if centred else g) - u * (row_sum(g, u) / C), start)

        return fma(u, w, b), backward

    def head_norm(self, name, x):
        """Of heads (B,H,T,D)."""
        w, D = self.weights[name + ".weight"], x.shape[3]
        r = ONE / np.sqrt(row_sum(x, x) / f32(D) + number("0x1.4f8b58p-17"))

        def backward(d):
            low, high = np.split(d * w * x * r, [(D + 1) // 2], axis=-1)
            along = row_sum(low + np.pad(high, [(0, 0)] * 3 + [(0, D % 2)])) / f32(D)
            self.gradients[name + ".weight"] = columns(d.transpose(0, 2, 1, 3), (x * r).transpose(0, 2, 1, 3), 32 * x.shape[1])
            return r * (d * w - x * r * along)

        return x * (r * w), backward

    def rotate(self, x, sign=1):
        T, half = x.shape[2], self.D // 2
        base = float((self.keys["position"] + ":10000").split(":")[1])
        angles = [[t * exp64(-2.0 * i / self.D * float(log(base))) for i in range(half)] for t in range(T)]
        c, s = (np.array([[turn(angle, quarters) for angle in row] for row in angles]).astype(f32) for quarters in (1, 0))
        a, b, s = x[..., :half], x[..., half:], s * f32(sign)
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    def attention(self, name, qkv):
        B, T, H, D, rope = *qkv.shape[:2], self.keys["n_head"], self.D, self.keys["position"] != "learned"
        split = lambda x: x.reshape(B, T, -1, D).transpose(0, 2, 1, 3)
        join = lambda x: x.transpose(0, 2, 1, 3).reshape(B, T, -1)
        q, k, v = np.split(split(qkv), [H, H + H // self.shared], axis=1)
        q_back = k_back = lambda d: d
        if self.keys["qk_norm"] == "True":
            (q, q_back), (k, k_back) = self.head_norm(name + ".q_norm", q), self.head_norm(name + ".k_norm", k)
        q, k = (self.rotate(q), self.rotate(k)) if rope else (q, k)
        k, v = np.repeat(k, self.shared, 1), np.repeat(v, self.shared, 1)
        scale, later = ONE / np.sqrt(f32(D)), np.triu(np.ones((T, T), bool), 1)
        scores = np.where(later, f32(-np.inf), product(q, turned(k)) * scale)
        top = scores.max(-1, keepdims=True)
        e = np.where(later, ZERO, exp(scores - top))
        total = row_sum(e)
        out = product(e, v) * (ONE / total)

        def backward(d):
            d = split(d)
            p = np.where(later, ZERO, exp(scores - (top + f32(log(total)))))
            g = p * scale * (product(d, turned(v)) - row_sum(d, out))
            of_copies = lambda d: sum(d.reshape(B, -1, self.shared, T, D).transpose(2, 0, 1, 3, 4))
            dq, dk, dv = product(g, k), of_copies(product(turned(g), q)), of_copies(product(turned(p), d))
            dq, dk = (self.rotate(dq, -1), self.rotate(dk, -1)) if rope else (dq, dk)
            return np.concatenate([join(d) for d in (q_back(dq), k_back(dk), dv)], -1)

        return join(out), backward

    def block(self, name, x):
        unit, unit_back = self.norm(name + ".ln_1", x)
        qkv, qkv_back = self.linear(name + ".attn.c_attn", unit)
        mixed, mixed_back = self.attention(name + ".attn", qkv)
        out, out_back = self.linear(name + ".attn.c_proj", mixed)
        middle = x + out
        unit, unit2_back = self.norm(name + ".ln_2", middle)
        inner, inner_back = self.linear(name + ".mlp.c_fc", unit)
        value, value_back = activation(inner, self.keys["mlp"])
        out, out2_back = self.linear(name + ".mlp.c_proj", value)

        def backward(d):
            d = unit2_back(inner_back(value_back(out2_back(d))), d)
            return unit_back(qkv_back(mixed_back(out_back(d))), d)

        return middle + out, backward

    def head(self, x, targets, scale):
        """The losses, and the gradient of x (B*T,C)."""
        name = "lm_head.weight" if "lm_head.weight" in self.weights else "wte.weight"
        w, at, z, cap = self.weights[name], (np.arange(len(x)), targets), f32(self.keys["z_loss"]), f32(self.keys["logit_softcap"])
        logits = product(x, w.T)
        slope = np.ones_like(logits)
        if cap:
            logits = cap * tanh(logits * (ONE / cap))
            slope = ONE - (logits * (ONE / cap)) * (logits * (ONE / cap))
        top = logits.max(-1, keepdims=True)
        e = exp(logits - top)
        total = joined(sum(lanes(e[:, i : i + 1024]) for i in range(0, e.shape[1], 1024)))
        n = f32(log(total)) + top
        more = ONE + f32(2) * z * n
        d = e * (scale / total * more) * slope
        d[at] = (e[at] / total[:, 0] * more[:, 0] - ONE) * scale * slope[at]
        self.gradients[name] = product(d.T, x)
        return n[:, 0] - logits[at] + z * n[:, 0] * n[:, 0], product(d, w)

    def run(self, ids, scale):
        """The losses of rows of T + 1 ids; the gradients are those of the sum of the losses times `scale`."""
        inputs, T, backs, p = ids[:, :-1], ids.shape[1] - 1, [], self.weights
        x = p["wte.weight"][inputs] + (p["wpe.weight"][:T] if "wpe.weight" in p else ZERO)
        for layer in range(self.keys["n_layer"]):
            x, back = self.block(f"h.{layer}", x)
            backs.append(back)
        unit, unit_back = self.norm("ln_f", x)
        losses, d = self.head(rows(unit), ids[:, 1:].reshape(-1), f32(scale))
        d = unit_back(d.reshape(x.shape))
        for back in reversed(backs):
            d = back(d)
        of_ids = self.gradients.setdefault("wte.weight", np.zeros_like(p["wte.weight"]))
        for id, row in zip(inputs.reshape(-1), rows(d)):
            of_ids[id] += row
        self.gradients["wpe.weight"] = sum(d)
        return losses


# ---- the update


def square_root(x):
    """Of the sum of squares of an array."""
    total, x = 0.0, x.reshape(-1)
    for piece in range(0, len(x), 8192):
        of_runs = 0.0
        for run in (x[i : min(i + 4096, piece + 8192)] for i in range(piece, min(piece + 8192, len(x)), 4096)):
            whole = len(run) // 32 * 32
            even, odd = run[:whole].reshape(-1, 2, 16).transpose(1, 0, 2).reshape(2, -1)
            even = np.append(even, run[whole:])
            of_runs += float(joined(lanes(even, even) + lanes(odd, odd))[0])
        total += of_runs
    return f32(math.sqrt(total))


def norm_of(gradients):
    flat = []
    for name, g in gradients.items():
        padded = np.pad(g, [(0, -len(g) % 64), (0, 0)]) if name in ("wte.weight", "lm_head.weight") else g.T if name.startswith("h.") else g
        flat.append(np.pad(padded.reshape(-1), (0, -padded.size % 64)))
    return square_root(np.concatenate(flat))


def learning_rate(keys, step):
    rate, least, warmup, end = (keys[key] for key in ("learning_rate", "min_lr", "warmup_iters", "lr_decay_iters"))
    if step < warmup:
        return rate * (step + 1) / (warmup + 1)
    return least + 0.5 * (1 + turn(math.pi * ((step - warmup) / (end - warmup)), 1)) * (rate - least)


def adamw(keys, p, g, m, v, t, rate):
    b1, b2 = f32(keys["beta1"]), f32(keys["beta2"])
    m[:] = fma(ONE - b1, g, b1 * m)
    v[:] = fma(ONE - b2, g * g, b2 * v)
    r = f32(1 / math.sqrt(1 - power(keys["beta2"], t)))
    shrink = f32(1 - rate * keys["weight_decay"]) if p.ndim == 2 else ONE
    p[:] = p * shrink - f32(rate / (1 - power(keys["beta1"], t))) * (m / fma(np.sqrt(v), r, number("0x1.5798eep-27")))


def symmetric(a, b):
    out = np.triu(product(a.T, b))
    return out + np.triu(out, 1).T


def newton_schulz(a):
    square, diagonal, (a0, a1, a2) = symmetric(a, a), np.eye(len(a), dtype=bool), map(f32, of("0x1.b8e56p+1 -0x1.31999ap+2 0x1.040832p+1"))
    return np.where(diagonal, a0 + a1 * a + a2 * square, fma(a2, square, a1 * a))


def muon(keys, p, g, m, rate):
    """Of one matrix, outputs x inputs."""
    keep = f32(keys["muon_momentum"])
    m[:] = fma(g, ONE - keep, m * keep)
    x = fma(g, ONE - keep, m * keep)
    x = x * (ONE / max(square_root(x), number("0x1.ad7f2ap-24")))
    tall = x.shape[0] >= x.shape[1]
    x = x.T if tall else x
    for twice in True, False, True:
        r = symmetric(x.T, x.T)
        q = newton_schulz(r)
        x = product(symmetric(q, newton_schulz(symmetric(symmetric(r, q), q))) if twice else q, x)
    rate = rate * (keys["muon_learning_rate"] / keys["learning_rate"] if keys["muon_learning_rate"] else 1)
    scale = number("0x1.99999ap-3") * np.sqrt(f32(max(p.shape))) * f32(rate)
    p[:] = p * f32(1 - rate * keys["weight_decay"]) - (x.T if tall else x) * scale


def matrices(keys, name, tensor):
    """Outputs x inputs: those of c_attn, and of swiglu's c_fc."""
    C, shared = keys["n_embd"], keys["n_embd"] // keys["n_head"] * (keys["n_kv_head"] or keys["n_head"])
    return np.split(tensor.T, [C, C + shared] if "c_attn" in name else 2 if "c_fc" in name and keys["mlp"] == "swiglu" else 1)


def evaluate(keys, weights, rows):
    """The loss of an evaluation of rows of T + 1 ids."""
    sums = [sum(map(float, MicroBatch({**keys, "z_loss": 0}, weights).run(row[None], 1))) for row in rows]
    return sum(sums) / (len(rows) * keys["block_size"])


def train(keys, weights, row, steps):
    """The loss, the norm, and the weights and moments by their names in checkpoints, of each step; row(sample) are its T + 1 ids. `weights`
    have the order of model.safetensors."""
    B, A, N = (keys["batch_size"], keys["gradient_accumulation_steps"], keys["batch_size"] * keys["gradient_accumulation_steps"] * keys["block_size"])
    m, v = ({name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    by_muon = [name for name in weights if name.startswith("h.") and weights[name].ndim == 2 and keys["optimizer"] == "muon"]
    for step in range(steps):
        losses, g = 0.0, dict.fromkeys(weights, ZERO)
        for micro in range(step * A, step * A + A):
            batch = MicroBatch(keys, weights)
            losses += sum(map(float, batch.run(np.stack([row(micro * B + i) for i in range(B)]), 1 / N)))
            g = {name: g[name] + batch.gradients[name] for name in weights}
        norm, clip, rate = norm_of(g), f32(keys["grad_clip"]), learning_rate(keys, step)
        factor = clip / (norm + number("0x1.0c6f7ap-20")) if 0 < clip < norm else ONE
        for name, p in weights.items():
            if name in by_muon:
                for parts in zip(*(matrices(keys, name, tensor) for tensor in (p, g[name] * factor, m[name]))):
                    muon(keys, *parts, rate)
            else:
                adamw(keys, p, g[name] * factor, m[name], v[name], step + 1, rate)
        moments = {f"{'muon.momentum' if name in by_muon else 'adamw.m'}.{name}": m[name] for name in weights}
        yield losses / N, float(norm), {**weights, **moments, **{f"adamw.v.{name}": v[name] for name in weights if name not in by_muon}}
