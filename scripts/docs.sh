#!/usr/bin/env bash
# docs.sh PYTHON: the manual as a site with search, in build/site. A link to a page or a heading that does not exist is an error.
set -eu
cd "$(dirname "$0")/.."
pages=build/site-pages
rm -rf $pages && mkdir -p $pages
cp docs/*.md docs/*.png scripts/iframe-worker.js scripts/site.css $pages/
sed 's|](docs/|](|g; s|](loader/python/README.md|](pytorch.md|' README.md >$pages/index.md
sed 's|](docs/|](|g' CONTRIBUTING.md >$pages/CONTRIBUTING.md
cp CHANGELOG.md $pages/
cp loader/python/README.md $pages/pytorch.md
sed -i 's|](../loader/python/README.md|](pytorch.md|' $pages/*.md
NO_MKDOCS_2_WARNING=1 "$1" -m mkdocs build --quiet --strict --config-file scripts/mkdocs.yml
# A page asks no other server for anything.
if grep -rE '<(script|link|img|iframe)[^>]*(src|href)="?(https?:)?//' build/site --include='*.html'; then exit 1; fi
echo "build/site/index.html"
