/* A library that its users cannot find at run time. */
int lathe_fixture_gone(void);

int lathe_fixture_gone(void)
{
    return 1;
}
