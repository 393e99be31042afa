"""Programs from elsewhere: fetched over https, kept by digest, pinned in `prose.lock`, run once a person has agreed."""
