# Installs Causeway from this archive.
#   make install                  below /usr/local
#   make install PREFIX=/usr      elsewhere; with DESTDIR=DIR into a folder, for packages
#   make uninstall                removes the files; /etc/causeway stays
PREFIX ?= /usr/local
LIB ?= lib
COMPONENTS ?= daemon mx-tool mx-pages myriexpress myriexpress-dev libfabric

OPTIONS = --prefix '$(PREFIX)' --destdir '$(DESTDIR)' --lib '$(LIB)' --built built --pages pages

.PHONY: help install uninstall
help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -n 4

install:
	@scripts/install-files.sh $(OPTIONS) $(COMPONENTS)
	@[ -n '$(DESTDIR)' ] || { \
	    echo 'Then, as root: systemd-sysusers causeway.conf && ldconfig && systemctl daemon-reload'; \
	    echo '               systemctl enable --now causeway-holder causewayd'; }

uninstall:
	@scripts/install-files.sh $(OPTIONS) --remove $(COMPONENTS)
