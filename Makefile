# Everything sets itself up: python3, make and git are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Stable-Baselines3 brings PyTorch, which nothing else here needs: it lives apart.
SB3 := .venv-sb3
SB3_STAMP := $(SB3)/.installed
# Two test workers on two cores: one thread each is faster than two that fight.
ONE_THREAD := XLA_FLAGS="--xla_cpu_multi_thread_eigen=false $$XLA_FLAGS" NPROC=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# A file's tests stay together: they share what they have compiled.
PYTEST := $(ONE_THREAD) $(BIN)/pytest -n 2 --dist loadfile -q

.PHONY: demo docs test test-slow lint install sb3 sb3-compare sb3-evaluate clean

demo: $(STAMP)
	$(BIN)/s2pg demo

test: lint
	$(PYTEST) --durations=10

test-slow: $(STAMP)
	$(PYTEST) -m slow --durations=0

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

install: $(STAMP)

# The site is made of the repository's own pages and pictures, each where it lies; broken links stop it.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]" -c constraints.txt
	rm -rf .site && mkdir -p .site/pages
	git ls-files -z --cached --others --exclude-standard README.md CHANGELOG.md CONTRIBUTING.md docs benchmarks examples \
		| grep -zE '\.(md|png|gif|html)$$' | xargs -0 cp --parents -t .site/pages
	$(BIN)/zensical build --strict
	@echo "the site begins at .site/html/index.html"

# Another library learns on one of our tasks; both are timed on the same one; and it evaluates a policy of ours, RUN.
sb3: $(SB3_STAMP)
	$(SB3)/bin/python benchmarks/sb3/train.py

sb3-compare: $(SB3_STAMP)
	$(SB3)/bin/python benchmarks/sb3/compare.py --out benchmarks/sb3/cpu.json

sb3-evaluate: $(SB3_STAMP)
	$(SB3)/bin/python benchmarks/sb3/evaluate.py $(RUN)

$(SB3_STAMP): pyproject.toml constraints.txt
	test -x $(SB3)/bin/python || $(PYTHON) -m venv $(SB3)
	$(SB3)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[sb3]" -c constraints.txt
	touch $@

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[all,dev]" -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[warp]" -c constraints.txt \
		|| echo "warp-lang, 149 MB, could not be installed: its tests are skipped"
	touch $@

# The environments stay: making them anew costs minutes. `rm -r .venv .venv-sb3` removes them.
clean:
	rm -rf .site .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist demo
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
