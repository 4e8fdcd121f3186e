"""Archives, bundles and safe paths."""
