# The wheel of make dist, beside TREE: installed by pip without a network into a new environment, used, and removed.
load ../cli/helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    wheel=$(ls "${TREE%/*}"/millrace_gpt-*.whl)
}
new_environment() { python3 -m venv env && find env -not -type d | sort >before; }
install_wheel() { env/bin/pip install -q --no-index --no-deps "$wheel"; }

@test "pip installs the wheel into a new environment, its programs run there, and uninstall leaves no file" {
    new_environment
    install_wheel
    for program in millrace shardtool millrace-loader millrace-trainer; do cmp "$TREE/bin/$program" env/bin/$program; done
    sh "$ROOT/tests/dist/first_steps.sh" "$PWD/env" >log 2>&1 || { tail -n 30 log && false; }
    [ -s env/share/man/man1/millrace-train.1 ]
    env/bin/pip uninstall -q -y millrace-gpt
    diff <(grep -v '\.pyc$' before) <(find env -not -type d -not -name '*.pyc' | sort)
}

@test "the Python client in the wheel is that of loader/python" {
    new_environment
    install_wheel
    diff -r -x __pycache__ "$ROOT/loader/python/millrace_loader" env/lib/python3*/site-packages/millrace_loader
}

@test "the wheel has at most 40 MB, its record is right, and its tag is that of glibc 2.31" {
    [ "$(stat -c %s "$wheel")" -le 40000000 ]
    [[ "$wheel" == *-py3-none-manylinux_2_31_${DIST_MACHINE-x86_64}.whl ]]
    python3 - "$wheel" <<'PYTHON'
import base64, csv, hashlib, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
record = next(name for name in wheel.namelist() if name.endswith("/RECORD"))
rows = list(csv.reader(wheel.read(record).decode().splitlines()))
assert sorted(row[0] for row in rows) == sorted(wheel.namelist())
for name, digest, size in rows:
    if name != record:
        data = wheel.read(name)
        assert int(size) == len(data)
        assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
PYTHON
}

@test "pip install --target gives the same programs, which find mpi.so and libraries of NVIDIA's wheels beside it" {
    python3 -m venv env
    env/bin/pip install -q --no-index --no-deps --target folder "$wheel"
    for program in millrace shardtool millrace-loader millrace-trainer; do cmp "$TREE/bin/$program" folder/bin/$program; done
    for mpi in "$TREE"/lib/millrace/mpi*.so; do [ ! -e "$mpi" ] || cmp "$mpi" folder/libexec/millrace/"${mpi##*/}"; done
    sh "$ROOT/tests/dist/first_steps.sh" "$PWD/folder" >log 2>&1 || { tail -n 30 log && false; }
    [[ "$(folder/bin/millrace-trainer --version)" != *"without CUDA"* ]] || return 0
    mkdir -p folder/nvidia/cublas/lib && echo 'int in_stand_in;' | gcc -shared -x c - -o folder/nvidia/cublas/lib/libcublasLt.so.12
    run env -u LD_LIBRARY_PATH folder/bin/millrace doctor
    [[ "$output" == *"/nvidia/cublas/lib/libcublasLt.so.12"* ]]
}

@test "twine and auditwheel accept the wheel" {
    python3 -m venv tools && tools/bin/pip install -q twine auditwheel 2>log || skip "twine and auditwheel cannot be installed here"
    tools/bin/twine check --strict "$wheel"
    tools/bin/auditwheel show "$wheel" >shown
    grep -qE 'manylinux_2_(1|2)[0-9]_|manylinux_2_3[01]_|manylinux_2_[5-9]_' shown || { cat shown && false; }
}
