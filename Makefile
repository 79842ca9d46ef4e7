# Developer commands; `make help` lists them.
CARGO ?= cargo
FLOWLOOM = $(CARGO) run -q -p flowloom-cli --
DEMO = target/demo
FUNCTION = functions/port_knocking/port_knocking.efsm

.DEFAULT_GOAL := help
.PHONY: help deps run test bench evidence soak lint fmt book drawings

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

deps: ## install what the tests need and the machine lacks (apt-get; root or sudo)
	@scripts/deps

run: ## build, make traffic, run a function on it, compare the engines (no root needed)
	$(CARGO) build -p flowloom-cli
	@mkdir -p $(DEMO)
	$(FLOWLOOM) trace gen --function $(FUNCTION) --count 20000 --seed 1 -w $(DEMO)/knock.pcap
	$(FLOWLOOM) run $(FUNCTION) -r $(DEMO)/knock.pcap -w $(DEMO)/passed.pcapng
	$(FLOWLOOM) verify $(FUNCTION) -r $(DEMO)/knock.pcap --targets available

test: ## run every test; ends with `N passed, N failed, N skipped`
	@scripts/test --self-check
	@scripts/deps || test $$? -eq 3
	@scripts/test

bench: ## compare with the best peers, side by side (BENCH='--only functions --rounds 5'; root for the kernel)
	$(CARGO) run --release -q -p flowloom-bench -- $(BENCH)

evidence: ## run the long proofs, record them in docs/evidence (ONLY=id for one, JOBS=2 for two at a time)
	@scripts/evidence --jobs $(or $(JOBS),1) $(ONLY)

soak: ## compare random functions on all engines for FLOWLOOM_SOAK_SECONDS (600), then load one on interfaces (1800)
	@scripts/evidence --soak

lint: ## formatting, clippy, rustdoc, fuzz targets; warnings are errors
	@scripts/test --lint

fmt: ## format the sources
	$(CARGO) fmt --all

drawings: ## draw the functions' state machines anew (functions/*/*.svg)
	FLOWLOOM_BLESS=1 $(CARGO) test -q -p flowloom-efsm --test all drawings

book: ## render docs/book with mdbook, where it is installed
	@if command -v mdbook >/dev/null; then mdbook build docs/book; \
	else echo 'mdbook is not installed; the book is plain Markdown: docs/book/src/SUMMARY.md'; fi
