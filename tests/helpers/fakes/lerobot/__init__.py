"""A stub of LeRobot 0.4's interfaces of robots, cameras and teleoperators; on the path of the tests that say so alone."""
