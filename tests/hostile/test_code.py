"""What the package's own code never does: unpickle, evaluate, call a shell, listen on every address."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from bounded import bounded

ROOT = Path(__file__).parents[2]
PLACES = ("workbench", "tools")

# Names as they are called, and why not.
FORBIDDEN = {
    "eval": "runs text",
    "exec": "runs text",
    "compile": "makes code of text",
    "__import__": "imports by text",
    "os.system": "a shell",
    "os.popen": "a shell",
    "subprocess.getoutput": "a shell",
    "subprocess.getstatusoutput": "a shell",
    "asyncio.create_subprocess_shell": "a shell",
    "torch.load": "unpickles",
    "pickle.load": "unpickles",
    "pickle.loads": "unpickles",
    "pickle.Unpickler": "unpickles",
    "marshal.load": "unpickles",
    "marshal.loads": "unpickles",
    "shelve.open": "unpickles",
    "joblib.load": "unpickles",
    "dill.loads": "unpickles",
    "cloudpickle.loads": "unpickles",
    "pd.read_pickle": "unpickles",
    "pandas.read_pickle": "unpickles",
    "yaml.load": "may make any object",
    "yaml.unsafe_load": "makes any object",
    "yaml.full_load": "makes any object",
    "tarfile.extractall": "writes outside its folder",
}
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "pty"}
UNSAFE_LOADERS = {"yaml.Loader", "yaml.UnsafeLoader", "yaml.FullLoader", "yaml.CLoader"}
PROCESSES = {
    "subprocess.run",
    "subprocess.Popen",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
}


@cache
def trees() -> dict[str, ast.Module]:
    files = [path for place in PLACES for path in sorted((ROOT / place).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for name, tree in trees().items():
        for node in ast.walk(tree):
            yield f"{name}:{getattr(node, 'lineno', 0)}", node


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    for where, node in nodes():
        if isinstance(node, ast.Call):
            yield where, ast.unparse(node.func), node


def faults_of(source: str) -> list[str]:
    """For the tests of the tests."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found += call_faults("here", ast.unparse(node.func), node)
    return found


def call_faults(where: str, name: str, call: ast.Call) -> list[str]:
    found = [f"{where}: {name} {FORBIDDEN[name]}"] if name in FORBIDDEN else []
    for keyword in call.keywords:
        value = keyword.value
        if keyword.arg == "shell" and not (isinstance(value, ast.Constant) and value.value is False):
            found.append(f"{where}: shell=")
        if keyword.arg == "allow_pickle" and not (isinstance(value, ast.Constant) and value.value is False):
            found.append(f"{where}: allow_pickle=")
    if name in ("np.load", "numpy.load") and all(keyword.arg != "allow_pickle" for keyword in call.keywords):
        found.append(f"{where}: {name} without allow_pickle=False")
    if name in PROCESSES and isinstance(call.args[0] if call.args else None, ast.Constant | ast.JoinedStr | ast.BinOp):
        found.append(f"{where}: a command line that is one text")
    return found


def test_nothing_is_unpickled_or_evaluated_and_no_shell_is_called() -> None:
    assert [fault for where, name, call in calls() for fault in call_faults(where, name, call)] == []


@pytest.mark.parametrize(
    "source",
    [
        "torch.load(p, weights_only=True)",
        "pd.read_pickle(p)",
        "np.load(p)",
        "np.load(p, allow_pickle=True)",
        "subprocess.run(a, shell=True)",
        "subprocess.run(f'ls {a}')",
        "subprocess.Popen('ls')",
        "os.system(a)",
        "eval(a)",
        "yaml.load(a, Loader=yaml.Loader)",
    ],
)
def test_each_of_them_would_be_found(source: str) -> None:
    assert faults_of(source)


def test_modules_that_unpickle_are_not_imported() -> None:
    found = []
    for where, node in nodes():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [f"{where}: {name}" for name in names if name.split(".")[0] in MODULES]
    assert found == []


def test_yaml_is_read_with_the_safe_loader() -> None:
    used = {ast.unparse(node) for _, node in nodes() if isinstance(node, ast.Attribute)}
    assert not used & UNSAFE_LOADERS
    assert "yaml.SafeLoader" in used


def test_no_python_that_is_started_takes_modules_from_the_folder_where_it_starts() -> None:
    """A `tokenize.py` there would be run before anything of ours: ``-P`` leaves the folder out."""
    started = {
        where: ast.unparse(node.elts[1])
        for where, node in nodes()
        if isinstance(node, ast.List) and len(node.elts) > 1 and ast.unparse(node.elts[0]) == "sys.executable"
    }
    started = {where: option for where, option in started.items() if where.startswith("workbench/")}
    assert len(started) > 5
    assert set(started.values()) == {"'-P'"}, started


def test_only_where_it_is_compared_does_an_address_of_all_interfaces_stand() -> None:
    """The one place turns it into an address that can be called."""
    found = [where for where, node in nodes() if isinstance(node, ast.Constant) and node.value in ("0.0.0.0", "::")]
    assert [where.partition(":")[0] for where in found] == ["workbench/reference/run.py"]


def test_what_is_extracted_from_archives_are_members_by_name() -> None:
    assert [where for where, name, _ in calls() if name.endswith(".extractall")] == []


# --- pickles -----------------------------------------------------------------------------------------------------

HARMFUL = (
    "import pickle, sys, zipfile\n"
    "class Harmful:\n"
    "    def __reduce__(self): return print, ('this ran',)\n"
    "folder = sys.argv[1]\n"
    "for name in ('pytorch_model.bin', 'a.pt', 'b.pth', 'c.ckpt', 'd.npy', 'state.safetensors', 'model.safetensors'):\n"
    "    open(f'{folder}/{name}', 'wb').write(pickle.dumps(Harmful()))\n"
    "pickle.load(open(f'{folder}/a.pt', 'rb'))\n"
)
READ = (
    "import builtins, io, os, sys\n"
    "from workbench.cli import main\n"
    "from workbench.checkpoint import read_checkpoint\n"
    "opened = []\n"
    "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
    "for name in ('pytorch_model.bin', 'a.pt', 'model.safetensors', ''):\n"
    "    path = os.path.join(sys.argv[1], name)\n"
    "    print('exit', main(['check', path, '--target', sys.argv[1]]))\n"
    "print('pickles opened', [p for p in opened if p.endswith(('.bin', '.pt', '.pth', '.ckpt'))])\n"
    "print('torch', 'torch' in sys.modules, 'pickle', any('_pickle' in p for p in opened))\n"
)


def test_a_pickle_given_as_a_checkpoint_is_refused_unopened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    assert bounded(HARMFUL, tmp_path, mib=500, seconds=60).strip() == "this ran"  # else nothing would be shown below
    said = bounded(READ, tmp_path, mib=3000, seconds=60)
    assert "this ran" not in said
    assert "pickles opened []" in said
    assert "torch False" in said
    assert "exit 0" not in said
