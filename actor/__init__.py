"""The actor side: environments, policies, and the way from steps to blocks. Imports neither torch nor gymnasium by itself."""
