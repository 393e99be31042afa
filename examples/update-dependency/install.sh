#!/bin/sh
# Installs what requirements.txt pins into vendor/, from packages/ beside the project; stands for `pip install --target`.
set -eu
rm -rf vendor && mkdir vendor
while IFS='=' read -r name _ version; do
    [ -d "../packages/$version/$name" ] || { echo "there is no $name $version" >&2; exit 1; }
    cp -r "../packages/$version/$name" vendor/
done < requirements.txt
