"""Training and sampling in float32 with reduce_order=fixed, as docs/bits.md describes them, in plain NumPy: one order, one rounding."""
import math

import numpy as np

import philox

f32, f64 = np.float32, np.float64
DEFAULTS = {"seed": 1337, "sampling": "epoch", "norm": "layernorm", "mlp": "gelu", "position": "learned", "n_kv_head": 0, "qk_norm": "False",
            "logit_softcap": 0, "z_loss": 0, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "min_lr": 6e-5, "optimizer": "adamw",
            "muon_momentum": 0.95, "muon_learning_rate": 0, "lr_schedule": "cosine", "ema": 0, "dropout": 0, "document_mask": "False", "loss_tokens": "all"}  # fmt: skip
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


def added(values):
    """In order, in float64, which sum() of Python 3.12 does not do."""
    return float(np.cumsum(list(values), dtype=f64)[-1])


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
    return np.ldexp(polynomial([1 / math.factorial(i) for i in range(14)], (x - n * HIGH) - n * LOW), np.int64(n))


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


def unit(low, high):
    """From 0 to 1, of 64 random bits."""
    return ((high << np.uint64(32) | low) >> np.uint64(11)).astype(f64) * 2.0**-53


def random(keys, i, *counter):
    """The four words of each number i below 2^32."""
    return philox.philox([i, *(np.broadcast_to(word, i.shape) for word in counter)], [keys["seed"] & 0xFFFFFFFF, keys["seed"] >> 32])


def power(x, n):
    p = 1.0
    while n:
        p, x, n = p * x if n & 1 else p, x * x, n >> 1
    return p


# ---- the model

PLACES = {"wte": 0, "wpe": 1, "attn.c_attn": 2, "attn.c_proj": 3, "mlp.c_fc": 4, "mlp.c_proj": 5, "lm_head": 18}


def initial(keys, name, shape):
    """The values of a tensor of step 0."""
    stem, kind = name.rsplit(".", 1)
    if len(shape) == 1:
        return np.full(shape, f32(kind == "weight"))
    layer, place = stem.split(".", 2)[1:] if stem[:2] == "h." else (0, stem)
    words = random(keys, np.arange(math.prod(shape)), 0, int(layer), PLACES[place])
    m, k = np.frexp(unit(*words[:2]) + 2.0**-53)
    m, k = np.where(m < ROOT_HALF, 2 * m, m), np.where(m < ROOT_HALF, k - 1, k)
    s, (high, low) = (m - 1) / (m + 1), of("0x1.62e42fefa38p-1 0x1.ef35793c7673p-45")
    logs = k * high + (2 * s + (2 * s * (s * s * polynomial([1 / i for i in range(3, 22, 2)], s * s)) + k * low))
    y = 2 * math.pi * (0.25 - np.abs(unit(*words[2:]) - 0.5))
    cosines = -(y + y * (y * y * polynomial([(-1) ** i / math.factorial(2 * i + 1) for i in range(1, 11)], y * y)))
    normals = np.copysign(np.sqrt(-2 * logs * (cosines * cosines)), cosines)
    values = ((0.02 / math.sqrt(2.0 * keys["n_layer"]) if "c_proj" in place else 0.02) * normals).astype(f32)
    return values.reshape(shape[::-1]).T if stem[:2] == "h." else values.reshape(shape)


def counted(keys, row):
    """Whether each target of a row counts."""
    system, user, assistant, end = keys["turns"]
    on, out = False, []
    for id, target in zip(row, row[1:]):
        if id == keys["end_of_text"]:
            on = target not in (id, system, user, assistant)
        elif id in keys["turns"]:
            on = id == assistant
        out.append(on)
    return out


class MicroBatch:
    """Forward and backward pass. An operation returns its value and a function from the gradient of the value to that of its input,
    which also leaves the gradients of weights in `gradients`."""

    def __init__(self, keys, weights, step=None, first=0):
        """step: the training step whose sample `first` is the first row; None: an evaluation."""
        self.keys, self.weights, self.gradients, self.shared = keys, weights, {}, keys["n_head"] // (keys["n_kv_head"] or keys["n_head"])
        self.D, self.step, self.first = keys["n_embd"] // keys["n_head"], step, first

    def dropped(self, layer, site, x):
        """The factors of (B,...,C)."""
        p, C, B = self.keys["dropout"], x.shape[-1], len(x)
        if self.step is None or not p:
            return ONE
        i = np.broadcast_to(np.arange(x[0].size // C * -(-C // 8)), (B, x[0].size // C * -(-C // 8)))
        words = random(self.keys, i, self.first + np.arange(B)[:, None], self.step, 4 * layer + site)
        bits = np.stack([half for word in words for half in (word & np.uint64(0xFFFF), word >> np.uint64(16))], -1)
        bits = bits.reshape(B, -1, -(-C // 8) * 8)[..., :C].reshape(x.shape)
        return np.where(bits < math.floor(p * 65536 + 0.5), ZERO, f32(1 / (1 - p)))

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

    def attention(self, name, qkv, layer, first):
        B, T, H, D, rope = *qkv.shape[:2], self.keys["n_head"], self.D, self.keys["position"] != "learned"
        split = lambda x: x.reshape(B, T, -1, D).transpose(0, 2, 1, 3)
        join = lambda x: x.transpose(0, 2, 1, 3).reshape(B, T, -1)
        q, k, v = np.split(split(qkv), [H, H + H // self.shared], axis=1)
        q_back = k_back = lambda d: d
        if self.keys["qk_norm"] == "True":
            (q, q_back), (k, k_back) = self.head_norm(name + ".q_norm", q), self.head_norm(name + ".k_norm", k)
        q, k = (self.rotate(q), self.rotate(k)) if rope else (q, k)
        k, v = np.repeat(k, self.shared, 1), np.repeat(v, self.shared, 1)
        scale, hidden = ONE / np.sqrt(f32(D)), np.triu(np.ones((T, T), bool), 1) | (np.arange(T) < first[:, None, :, None])
        scores = np.where(hidden, f32(-np.inf), product(q, turned(k)) * scale)
        top = scores.max(-1, keepdims=True)
        e = np.where(hidden, ZERO, exp(scores - top))
        total, kept = row_sum(e), self.dropped(layer, 1, e)
        out = product(e * kept, v) * (ONE / total)

        def backward(d):
            d = split(d)
            p = np.where(hidden, ZERO, exp(scores - (top + f32(log(total)))))
            g = p * scale * (product(d, turned(v)) * kept - row_sum(d, out))
            of_copies = lambda d: sum(d.reshape(B, -1, self.shared, T, D).transpose(2, 0, 1, 3, 4))
            dq, dk, dv = product(g, k), of_copies(product(turned(g), q)), of_copies(product(turned(p * kept), d))
            dq, dk = (self.rotate(dq, -1), self.rotate(dk, -1)) if rope else (dq, dk)
            return np.concatenate([join(d) for d in (q_back(dq), k_back(dk), dv)], -1)

        return join(out), backward

    def block(self, layer, x, first):
        name = f"h.{layer}"
        unit, unit_back = self.norm(name + ".ln_1", x)
        qkv, qkv_back = self.linear(name + ".attn.c_attn", unit)
        mixed, mixed_back = self.attention(name + ".attn", qkv, layer, first)
        out, out_back = self.linear(name + ".attn.c_proj", mixed)
        kept = self.dropped(layer, 2, out)
        middle = x + out * kept
        unit, unit2_back = self.norm(name + ".ln_2", middle)
        inner, inner_back = self.linear(name + ".mlp.c_fc", unit)
        value, value_back = activation(inner, self.keys["mlp"])
        out, out2_back = self.linear(name + ".mlp.c_proj", value)
        kept2 = self.dropped(layer, 3, out)

        def backward(d):
            d = unit2_back(inner_back(value_back(out2_back(d * kept2))), d)
            return unit_back(qkv_back(mixed_back(out_back(d * kept))), d)

        return middle + out * kept2, backward

    def logits(self, x):
        """Of x (N,C), and their slopes."""
        cap, logits = f32(self.keys["logit_softcap"]), product(x, self.weights.get("lm_head.weight", self.weights["wte.weight"]).T)
        if not cap:
            return logits, ONE
        logits = cap * tanh(logits * (ONE / cap))
        return logits, ONE - (logits * (ONE / cap)) * (logits * (ONE / cap))

    def head(self, x, targets, scale, counts):
        """The losses, and the gradient of x (B*T,C)."""
        name = "lm_head.weight" if "lm_head.weight" in self.weights else "wte.weight"
        w, at, z = self.weights[name], (np.arange(len(x)), targets), f32(self.keys["z_loss"])
        logits, slope = self.logits(x)
        top = logits.max(-1, keepdims=True)
        e = exp(logits - top)
        total = joined(sum(lanes(e[:, i : i + 1024]) for i in range(0, e.shape[1], 1024)))
        n = f32(log(total)) + top
        more = ONE + f32(2) * z * n
        d = e * (scale / total * more) * slope
        d[at] = (e[at] / total[:, 0] * more[:, 0] - ONE) * scale * np.broadcast_to(slope, d.shape)[at]
        d = np.where(counts[:, None], d, ZERO)
        self.gradients[name] = product(d.T, x)
        return np.where(counts, n[:, 0] - logits[at] + z * n[:, 0] * n[:, 0], ZERO), product(d, w)

    def forward(self, inputs):
        """The rows before the head (B,T,C), and the backward passes to here, with that of the embedding first."""
        B, T, p, masked = *inputs.shape, self.weights, self.keys["document_mask"] == "True"
        first = np.maximum.accumulate(np.where((inputs == self.keys["end_of_text"]) & masked, np.arange(T), 0), 1)
        x = p["wte.weight"][inputs] + (p["wpe.weight"][:T] if "wpe.weight" in p else ZERO)
        kept = self.dropped(0, 0, x)
        x, backs = x * kept, [lambda d: d * kept]
        for layer in range(self.keys["n_layer"]):
            x, back = self.block(layer, x, first)
            backs.append(back)
        x, back = self.norm("ln_f", x)
        return x, [*backs, back]

    def run(self, ids, scale):
        """The losses of rows of T + 1 ids, and how many count; the gradients are those of the sum of the losses times `scale`."""
        inputs, counts = ids[:, :-1], np.ones(ids[:, 1:].size, bool)
        if self.keys["loss_tokens"] == "answers":
            counts = np.ravel([counted(self.keys, row) for row in ids])
        x, backs = self.forward(inputs)
        losses, d = self.head(rows(x), ids[:, 1:].reshape(-1), f32(scale), counts)
        d = d.reshape(x.shape)
        for back in reversed(backs):
            d = back(d)
        of_ids = self.gradients.setdefault("wte.weight", np.zeros_like(self.weights["wte.weight"]))
        for id, row in zip(inputs.reshape(-1), rows(d)):
            of_ids[id] += row
        self.gradients["wpe.weight"] = sum(d)
        return losses, counts.sum()


# ---- the update


def square_root(x):
    """Of the sum of squares of an array, in float64."""
    total, x = 0.0, x.reshape(-1)
    for piece in range(0, len(x), 8192):
        of_runs = 0.0
        for run in (x[i : min(i + 4096, piece + 8192)] for i in range(piece, min(piece + 8192, len(x)), 4096)):
            whole = len(run) // 32 * 32
            even, odd = run[:whole].reshape(-1, 2, 16).transpose(1, 0, 2).reshape(2, -1)
            even = np.append(even, run[whole:])
            of_runs += float(joined(lanes(even, even) + lanes(odd, odd))[0])
        total += of_runs
    return math.sqrt(total)


def padded(gradients):
    """All as one array."""
    flat = []
    for name, g in gradients.items():
        g = np.pad(g, [(0, -len(g) % 64), (0, 0)]) if name in ("wte.weight", "lm_head.weight") else g.T if name.startswith("h.") else g
        flat.append(np.pad(g.reshape(-1), (0, -g.size % 64)))
    return np.concatenate(flat)


def learning_rate(keys, step, cooldown=None):
    """cooldown: the last such line of the record, if there was one."""
    rate, least, warmup, end = (keys[key] for key in ("learning_rate", "min_lr", "warmup_iters", "lr_decay_iters"))
    schedule, _, count = keys["lr_schedule"].partition(":")
    if cooldown:
        begun, steps, done = (cooldown["cooldown_" + name] for name in ("begun", "steps", "done"))
        rate = learning_rate({**keys, "lr_schedule": "constant"}, begun)
        least = min(least, rate)
        return least + (1 - math.sqrt(min(1, done + (1 - done) * ((step - cooldown["step"]) / steps)))) * (rate - least)
    if step < warmup:
        return rate * (step + 1) / (warmup + 1)
    if schedule == "constant":
        return rate
    fall = int(count) if count else end / 5
    part = (step - warmup) / (end - warmup)
    left = {"linear": 1 - part, "cosine": 0.5 * (1 + turn(math.pi * part, 1)), "wsd": 1 - math.sqrt(max(0, step - (end - fall)) / fall)}[schedule]
    return least + left * (rate - least)


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
    x = x * (ONE / max(f32(square_root(x)), number("0x1.ad7f2ap-24")))
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
    losses, counts = zip(*(MicroBatch({**keys, "z_loss": 0}, weights).run(row[None], 1) for row in rows))
    return added(map(added, losses)) / sum(counts)


def sample(keys, weights, ids, stream, temperature, top_k, top_p, count):
    """Appends ids, up to an end of text."""
    for i in range(count):
        batch = MicroBatch(keys, weights)
        x = batch.logits(batch.forward(np.array([ids[-keys["block_size"] :]]))[0][0, -1:])[0][0].astype(f64)
        x[keys["end_of_text"]] = x[keys["end_of_text"]] or -np.inf
        weight, likeliest = exp64(np.maximum((x - x.max()) / temperature, -746)), np.argsort(-x, kind="stable")
        those = likeliest[:top_k] if 0 < top_k < len(x) else np.arange(len(x))
        sums = np.cumsum(weight[those])
        if top_p < 1:
            enough, those = top_p * sums[-1], likeliest[: len(those)]
            sums = np.cumsum(weight[those])
            sums = sums[: np.searchsorted(sums, enough) + 1]
        at = np.searchsorted(sums, unit(*random(keys, np.array([i]), 0, stream, 0)[:2])[0] * sums[-1], "right")
        ids = [*ids, int(those[min(at, len(sums) - 1)])]
        if ids[-1] == keys["end_of_text"]:
            break
    return ids


def train(keys, weights, row, steps):
    """The loss, the norm, and the weights and moments by their names in checkpoints, of each step; row(sample) are its T + 1 ids. `weights`
    have the order of model.safetensors."""
    B, A, N = (keys["batch_size"], keys["gradient_accumulation_steps"], keys["batch_size"] * keys["gradient_accumulation_steps"] * keys["block_size"])
    m, v, averages = ({name: np.zeros_like(w) for name, w in weights.items()} for _ in range(3))
    by_muon = [name for name in weights if name.startswith("h.") and weights[name].ndim == 2 and keys["optimizer"] == "muon"]
    for step in range(steps):
        losses, targets, g = 0.0, 0, dict.fromkeys(weights, ZERO)
        for micro in range(A):
            batch = MicroBatch(keys, weights, step, micro * B)
            of_rows, counts = batch.run(np.stack([row((step * A + micro) * B + i) for i in range(B)]), 1 / N)
            losses, targets = losses + added(of_rows), targets + int(counts)
            g = {name: g[name] + batch.gradients[name] for name in weights}
        divisor, clip, rate = f32(targets / N), f32(keys["grad_clip"]), learning_rate(keys, step)
        norm = f32(square_root(padded(g)) / float(divisor))
        factor = (clip / (norm + number("0x1.0c6f7ap-20")) if 0 < clip < norm else ONE) / divisor
        for name, p in weights.items():
            if name in by_muon:
                for parts in zip(*(matrices(keys, name, tensor) for tensor in (p, g[name] * factor, m[name]))):
                    muon(keys, *parts, rate)
            else:
                adamw(keys, p, g[name] * factor, m[name], v[name], step + 1, rate)
            averages[name] = fma(p - averages[name], f32(1 - min(keys["ema"], step / (step + 9))), averages[name])
        moments = {f"{'muon.momentum' if name in by_muon else 'adamw.m'}.{name}": m[name] for name in weights}
        moments |= {f"adamw.v.{name}": v[name] for name in weights if name not in by_muon}
        moments |= {f"ema.{name}": average for name, average in averages.items() if keys["ema"]}
        yield losses / targets, float(norm), {**weights, **moments}
